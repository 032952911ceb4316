# The first process of a node: init.sh FOLDER NAME, in namespaces of its own, with the cgroups to mount on standard input as lines of
# TYPE OPTIONS MOUNT-POINT.
set -e
folder=$1
hostname "$2"

# The namespaces' own view: devices of this network, cgroups from the node's root on.
umount -R /sys
mount -t sysfs sysfs /sys
tmpfs_at_cgroups=
while read -r type options point; do
  if [ "$point" != /sys/fs/cgroup ] && [ -z "$tmpfs_at_cgroups" ]; then
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    tmpfs_at_cgroups=yes
  fi
  mkdir -p "$point"
  mount -t "$type" -o "$options" "$type" "$point"
done

# Sockets and locks of containerd and its shims have fixed paths under /run.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$folder/pods" /run/lock
mkdir -p /var/log/pods /var/log/containers /var/lib/kubelet
for path in log/pods log/containers lib/kubelet; do
  mkdir -p "$folder/var/$path"
  mount --bind "$folder/var/$path" "/var/$path"
done

# The kubelet sets these for the whole machine unless they have its values: it is shown its values.
while read -r path value; do
  copy="$folder/sysctl-$(echo "$path" | tr / -)"
  echo "$value" >"$copy"
  mount --bind "$copy" "/proc/sys/$path"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
: >"$folder/up"

# Reaps whoever loses its parent.
while :; do
  sleep 3600 &
  wait $! || true
done
