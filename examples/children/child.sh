#!/bin/sh
# A child of soloist in a shell: ready, work, stop.

work() {
  echo "piece $1 under token ${SOLOIST_TOKEN:-none}"
}

stopping=
trap 'stopping=yes' TERM INT

# systemd-notify speaks the protocol; where there is none, leave --ready notify away.
if [ -n "$NOTIFY_SOCKET" ] && command -v systemd-notify >/dev/null; then
  systemd-notify --ready
fi

piece=0
while [ -z "$stopping" ]; do
  piece=$((piece + 1))
  work "$piece"
  # A shell hears a signal when its present command has ended; `wait` ends at once.
  sleep 1 &
  wait $!
done
# The signal went to the whole process group, so the sleep has ended too.
echo "ended in order"
