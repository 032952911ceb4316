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

const EXPRESSIONS: &[(&str, &str)] = &[
    (
        "[\"zz-lease\"]",
        "[{{ include \"soloist.lease\" . | quote }}]",
    ),
    ("zz-lease", "{{ include \"soloist.lease\" . }}"),
    ("zz-account", "{{ include \"soloist.serviceAccount\" . }}"),
    ("zz-namespace", "{{ .Release.Namespace }}"),
    ("zz-name", "{{ include \"soloist.name\" . }}"),
    ("zz-image", "{{ .Values.image | quote }}"),
    ("zz-soloist", "{{ .Values.soloist.image | quote }}"),
    ("\"/zz-path\"", "{{ include \"soloist.path\" . | quote }}"),
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
    ("9970", "{{ .Values.runAsUser }}"),
    ("997", "{{ .Values.replicas }}"),
    ("value: low-load", "value: {{ .Values.preset }}"),
];

/// Paths under `deploy` and texts.
pub(crate) fn templates() -> Vec<(String, String)> {
    let [plain, volume, init, prestop] = [
        &["--delivery", "in-image"][..],
        &["--delivery", "image-volume"],
        &["--delivery", "init-container"],
        &["--delivery", "in-image", "--prestop", "96s"],
    ]
    .map(|flags| manifests(&[FLAGS, flags].concat(), &["zz-program"]));
    plain
        .split("---\n")
        .map(|document| {
            let kind = document
                .lines()
                .find_map(|line| line.strip_prefix("kind: "));
            let kind = kind.unwrap().to_lowercase();
            let text = match kind.as_str() {
                "deployment" => deployment(document, &volume, &init, &prestop),
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

fn deployment(plain: &str, volume: &str, init: &str, prestop: &str) -> String {
    let resources = block(plain, "        resources:");
    let lifecycle = block(prestop, "        lifecycle:").replace("96", "{{ . }}");
    let variable = block(prestop, "        - name: SOLOIST_PRESTOP")
        .replace("\"96s\"", "{{ printf \"%ds\" (int .) | quote }}");
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
    let of_the_pod: String = [
        "imagePullSecrets",
        "nodeSelector",
        "tolerations",
        "affinity",
    ]
    .map(|key| optional(key, "      "))
    .concat();
    let is = |how: &str| format!("{{{{- if eq .Values.soloist.delivery \"{how}\" }}}}\n");
    let any = "{{- if or (ne .Values.soloist.delivery \"in-image\") .Values.writable }}\n";
    let end = "{{- end }}\n";
    let listens =
        |text: &str| format!("        {{{{- if .Values.listenPort }}}}\n{text}        {end}");

    let text = plain
        .replace(&resources, "        resources: {{ toJson .Values.resources }}\n")
        .replace(&listen, &listens(&listen))
        .replace(
            &probes,
            &format!(
                "        {{{{- with .Values.prestopSeconds }}}}\n{variable}        {end}        \
                 {{{{- with .Values.env }}}}\n        {{{{- toYaml . | nindent 8 }}}}\n        {end}{}",
                listens(&probes)
            ),
        )
        .replace(
            "        # No CPU limit",
            &format!("        {{{{- with .Values.prestopSeconds }}}}\n{lifecycle}        {end}        # No CPU limit"),
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
