# Ends what is left of a cluster and removes it: sweep.sh FOLDER CGROUP-PREFIX
#
# Every process of a node is in the node's cgroups; its mounts, devices and rules are in namespaces that end with the last of them.
folder=$1
prefix=$2

groups() {
  grep -E ' - cgroup2? ' /proc/self/mountinfo | cut -d' ' -f5 | while read -r root; do
    for group in "$root/$prefix"*; do
      if [ -d "$group" ]; then echo "$group"; fi
    done
  done
}

# A frozen process cannot be killed on cgroup v1.
groups | while read -r group; do
  if [ -e "$group/freezer.state" ]; then echo THAWED >"$group/freezer.state"; fi
  if [ -e "$group/cgroup.freeze" ]; then echo 0 >"$group/cgroup.freeze"; fi
done

tries=0
while [ -n "$(groups)" ] && [ "$tries" -lt 500 ]; do
  groups | while read -r group; do
    find "$group" -name cgroup.procs -exec cat {} + | sort -u | while read -r pid; do
      kill -KILL "$pid"
    done
    find "$group" -depth -type d -exec rmdir {} +
  done
  tries=$((tries + 1))
  [ -z "$(groups)" ] || sleep 0.02
done 2>/dev/null

[ -z "$folder" ] || rm -rf --one-file-system -- "$folder"
