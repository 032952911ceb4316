//! The chart's templates, made from what `soloist manifests` prints: values that appear nowhere else are replaced by
//! expressions, and what is optional is added in its place.

use crate::printed::manifests;

const FLAGS: &[&str] = &[
    "--name",
    "zz-name",
    "--namespace",
    "zz-namespace",
    "--no-namespace",
    "--flow-schema",
    "--lease",
    "zz-lease",
    "--service-account",
    "zz-account",
    "--image",
    "zz-image",
    "--soloist-image",
    "zz-soloist",
    "--soloist-path",
    "/zz-path",
    "--replicas",
    "997",
    "--run-as-user",
    "9970",
    "--grace-period",
    "9971s",
    "--preset",
    "low-load",
    "--listen-port",
    "9972",
];

/// Nobody is elected.
const ALONE: &[&str] = &[
    "--name",
    "zz-name",
    "--store",
    "none",
    "--delivery",
    "in-image",
];

const EXPRESSIONS: &[(&str, &str)] = &[
    (
        "[\"zz-lease\"]",
        "[{{ include \"soloist.lease\" . | quote }}]",
    ),
    ("zz-lease", "{{ include \"soloist.lease\" . | quote }}"),
    (
        "zz-account",
        "{{ include \"soloist.serviceAccount\" . | quote }}",
    ),
    (
        "soloist.zz-namespace.zz-name",
        "soloist.{{ .Release.Namespace }}.{{ include \"soloist.name\" . }}",
    ),
    ("zz-namespace", "{{ .Release.Namespace | quote }}"),
    ("zz-name", "{{ include \"soloist.name\" . | quote }}"),
    ("zz-image", "{{ .Values.image | quote }}"),
    ("zz-soloist", "{{ .Values.soloist.image | quote }}"),
    ("\"/zz-path\"", "{{ include \"soloist.path\" $ | quote }}"),
    ("[\"zz-program\"]", "{{ toJson .Values.command }}"),
    (
        "\"9971s\"",
        "{{ printf \"%ds\" (int .Values.gracePeriodSeconds) | quote }}",
    ),
    ("9971", "{{ .Values.gracePeriodSeconds }}"),
    (
        "\":9972\"",
        "{{ printf \":%d\" (int .Values.listenPort) | quote }}",
    ),
    ("9972", "{{ .Values.listenPort }}"),
    // Helm has large numbers of a values file as 1e+09.
    ("9970", "{{ .Values.runAsUser | int64 }}"),
    ("997", "{{ .Values.replicas }}"),
    ("value: low-load", "value: {{ .Values.preset }}"),
];

/// Paths under `deploy` and texts.
pub(crate) fn templates() -> Vec<(String, String)> {
    let [plain, volume, init, prestop, extra, hook, alone] = [
        &["--delivery", "in-image"][..],
        &["--delivery", "image-volume"],
        &["--delivery", "init-container"],
        &["--delivery", "in-image", "--prestop", "96s"],
        &[
            "--delivery",
            "in-image",
            "--extra-rights",
            "--label-role",
            "--leave-cordoned-node",
        ],
        &[
            "--delivery",
            "in-image",
            "--prestop",
            "96s",
            "--prestop-hook",
            "soloist",
        ],
    ]
    .map(|flags| manifests(&[FLAGS, flags].concat(), &["zz-program"]))
    .into_iter()
    .chain([manifests(ALONE, &["zz-program"])])
    .collect::<Vec<_>>()
    .try_into()
    .unwrap();
    let of_nodes = extra
        .split("---\n")
        .filter(|document| document.contains("\nkind: ClusterRole"));
    plain
        .split("---\n")
        .chain(of_nodes)
        .map(|document| {
            let kind = document
                .lines()
                .find_map(|line| line.strip_prefix("kind: "));
            let kind = kind.unwrap().to_lowercase();
            let text = match kind.as_str() {
                "deployment" => {
                    let variants = Variants {
                        volume: &volume,
                        init: &init,
                        prestop: &prestop,
                        extra: &extra,
                        hook: &hook,
                        alone: &alone,
                    };
                    deployment(document, &variants)
                }
                "role" => only_if(
                    "include \"soloist.hasRights\" .",
                    &role(document, &extra, &hook),
                ),
                "rolebinding" => only_if("include \"soloist.hasRights\" .", document),
                "clusterrole" | "clusterrolebinding" => {
                    only_if(".Values.leaveCordonedNode", document)
                }
                "poddisruptionbudget" => only_if("gt (int .Values.replicas) 1", document),
                "flowschema" => only_if(".Values.flowSchema", document),
                _ => document.to_owned(),
            };
            let path = format!("helm/soloist/templates/{kind}.yaml");
            (path, with_expressions(&text))
        })
        .collect()
}

fn with_expressions(text: &str) -> String {
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    EXPRESSIONS.iter().fold(text.to_owned(), replace)
}

fn only_if(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

/// The least Role, and after it what soloist can do without.
fn role(least: &str, extended: &str, hook: &str) -> String {
    let (head, lease) = least.split_at(least.find("rules:\n").unwrap() + "rules:\n".len());
    let lease = only_if("eq .Values.store \"kubernetes\"", lease);
    let (_, prestop) = hook.split_once(least).expect("the least Role first");
    let (prestop, _) = prestop.split_once("---\n").unwrap();
    let prestop = only_if("include \"soloist.waits\" .", prestop);
    let (_, rest) = extended.split_once(least).expect("the least Role first");
    let (rest, _) = rest.split_once("---\n").unwrap();
    let (rest, leave) = rest.split_at(rest.find("# For --leave-cordoned-node").unwrap());
    let (extra, label) = rest.split_at(rest.find("# For --label-role").unwrap());
    let extra = only_if(".Values.extraRights", extra);
    let label = only_if(".Values.labelRole", label);
    let leave = only_if(".Values.leaveCordonedNode", leave);
    format!("{head}{lease}{extra}{label}{leave}{prestop}")
}

/// What is printed with other flags.
struct Variants<'a> {
    volume: &'a str,
    init: &'a str,
    prestop: &'a str,
    extra: &'a str,
    hook: &'a str,
    alone: &'a str,
}

fn deployment(plain: &str, variants: &Variants<'_>) -> String {
    let Variants {
        volume,
        init,
        prestop,
        extra,
        hook,
        alone,
    } = variants;
    let label_role = block(extra, "        - name: SOLOIST_LABEL_ROLE");
    let leave = block(extra, "        - name: SOLOIST_LEAVE_CORDONED_NODE");
    let resources = block(plain, "        resources:");
    let sleep = block(prestop, "        lifecycle:").replace("96", "{{ . }}");
    let exec =
        block(hook, "        lifecycle:").replace("\"96s\"", "{{ printf \"%ss\" . | quote }}");
    let end = "{{- end }}\n";
    let lifecycle = format!(
        "        {{{{- if include \"soloist.waits\" $ }}}}\n{exec}        {{{{- else }}}}\n{sleep}        {end}"
    );
    let variable = block(prestop, "        - name: SOLOIST_PRESTOP")
        .replace("\"96s\"", "{{ printf \"%ss\" . | quote }}");
    let preset = block(plain, "        - name: SOLOIST_PRESET");
    let store = block(alone, "        - name: SOLOIST_STORE");
    let listen = block(plain, "        - name: SOLOIST_LISTEN");
    let (_, probes) = plain.split_once("        ports:\n").unwrap();
    let (probes, _) = probes.split_once("        # No CPU limit").unwrap();
    let probes = format!("        ports:\n{probes}");
    let mount = items(volume, "        volumeMounts:");
    let image_volume = items(volume, "      volumes:");
    let folder_volume = items(init, "      volumes:");
    let install = block(init, "      initContainers:");
    let optional = |key: &str, indent: &str| {
        format!(
            "{indent}{{{{- with .Values.{key} }}}}\n{indent}{key}: {{{{ toJson . }}}}\n{indent}{{{{- end }}}}\n"
        )
    };
    let tolerations = "      {{- with include \"soloist.tolerations\" . }}\n      tolerations: {{ . }}\n      {{- end }}\n";
    let of_the_pod = [
        optional("imagePullSecrets", "      "),
        optional("nodeSelector", "      "),
        tolerations.to_owned(),
        optional("affinity", "      "),
    ]
    .concat();
    let is = |how: &str| format!("{{{{- if eq .Values.soloist.delivery \"{how}\" }}}}\n");
    let any = "{{- if or (ne .Values.soloist.delivery \"in-image\") .Values.writable }}\n";
    let listens =
        |text: &str| format!("        {{{{- if .Values.listenPort }}}}\n{text}        {end}");

    let text = plain
        .replace(
            &preset,
            &format!(
                "        {{{{- if eq .Values.store \"none\" }}}}\n{store}        {{{{- else }}}}\n{preset}        {end}"
            ),
        )
        .replace(
            "automountServiceAccountToken: true\n",
            "automountServiceAccountToken: {{ ternary \"true\" \"false\" (or (eq .Values.store \"kubernetes\") (eq (include \"soloist.waits\" .) \"true\")) }}\n",
        )
        .replace(&resources, "        resources: {{ toJson .Values.resources }}\n")
        .replace(&listen, &listens(&listen))
        .replace(
            &probes,
            &format!(
                "        {{{{- with include \"soloist.prestop\" . }}}}\n{variable}        {end}        \
                 {{{{- if .Values.labelRole }}}}\n{label_role}        {end}        \
                 {{{{- if .Values.leaveCordonedNode }}}}\n{leave}        {end}        \
                 {{{{- with .Values.env }}}}\n        {{{{- toYaml . | nindent 8 }}}}\n        {end}{}",
                listens(&probes)
            ),
        )
        .replace(
            "        # No CPU limit",
            &format!("        {{{{- with include \"soloist.prestop\" . }}}}\n{lifecycle}        {end}        # No CPU limit"),
        )
        .replace(
            "      containers:\n",
            &format!("{of_the_pod}      {}{install}      {end}      containers:\n", is("init-container")),
        );
    format!(
        "{text}        {any}        volumeMounts:\n        {{{{- if ne .Values.soloist.delivery \"in-image\" }}}}\n{mount}        {end}        \
         {{{{- range $n, $path := .Values.writable }}}}\n        - name: writable-{{{{ $n }}}}\n          mountPath: {{{{ $path | quote }}}}\n        {end}        {end}      \
         {any}      volumes:\n      {}{image_volume}      {end}      {}{folder_volume}      {end}      \
         {{{{- range $n, $path := .Values.writable }}}}\n      - name: writable-{{{{ $n }}}}\n        emptyDir: {{}}\n      {end}      {end}",
        is("image-volume"),
        is("init-container"),
    )
}

/// The line and all that belongs to it.
fn block(text: &str, head: &str) -> String {
    let indent = head.len() - head.trim_start().len();
    let mut lines = text.lines().skip_while(|line| *line != head);
    let first = lines
        .next()
        .unwrap_or_else(|| panic!("no {head:?} in {text}"));
    let is_list = head.ends_with(':');
    let belongs = |line: &&str| {
        let depth = line.len() - line.trim_start().len();
        depth > indent || (is_list && depth == indent && line.trim_start().starts_with("- "))
    };
    let rest: String = lines
        .take_while(belongs)
        .map(|line| format!("{line}\n"))
        .collect();
    format!("{first}\n{rest}")
}

/// What belongs to the line.
fn items(text: &str, head: &str) -> String {
    let block = block(text, head);
    block.split_once('\n').unwrap().1.to_owned()
}
