// Command peer contends with client-go's leader election and prints one JSON line per event. What it can hold is in lock.go.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
)

type settings struct {
	kubeconfig, lock, namespace, lease, identity string
	leaseDuration, renewDeadline, retry          time.Duration
	releaseOnCancel, orphanChild                 bool
	stopTimeout                                  time.Duration
	command                                      []string
}

func main() {
	s := parse()
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func parse() settings {
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "path of the kubeconfig (required)")
	flag.StringVar(&s.lock, "lock", "leases", "the kind of lock, as client-go names it")
	flag.StringVar(&s.namespace, "namespace", "default", "namespace of the lock")
	flag.StringVar(&s.lease, "lease", "", "name of the lock (required)")
	flag.StringVar(&s.identity, "identity", "", "this candidate's identity (required)")
	flag.DurationVar(&s.leaseDuration, "lease-duration", 15*time.Second, "LeaseDuration")
	flag.DurationVar(&s.renewDeadline, "renew-deadline", 10*time.Second, "RenewDeadline")
	flag.DurationVar(&s.retry, "retry-period", 2*time.Second, "RetryPeriod")
	flag.BoolVar(&s.releaseOnCancel, "release-on-cancel", true, "ReleaseOnCancel")
	flag.BoolVar(&s.orphanChild, "orphan-child", false, "let the child outlive a peer that is killed")
	flag.DurationVar(&s.stopTimeout, "stop-timeout", 20*time.Second, "time from the child's SIGTERM to its SIGKILL")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: peer -kubeconfig FILE -lease NAME -identity ID [flags] [-- CHILD ARGS...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	s.command = flag.Args()
	if s.kubeconfig == "" || s.lease == "" || s.identity == "" {
		flag.Usage()
		os.Exit(2)
	}
	return s
}

func run(s settings) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()

	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock, err := newLock(s, client)
	if err != nil {
		return err
	}
	events := newEvents(s.identity)
	child := &child{command: s.command, orphan: s.orphanChild, stopTimeout: s.stopTimeout, events: events}

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   s.leaseDuration,
		RenewDeadline:   s.renewDeadline,
		RetryPeriod:     s.retry,
		ReleaseOnCancel: s.releaseOnCancel,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				events.print("started", nil)
				child.start()
			},
			OnStoppedLeading: func() {
				child.stop()
				events.print("stopped", nil)
			},
			OnNewLeader: func(leader string) { events.print("new_leader", fields{"leader": leader}) },
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return nil
}

type fields map[string]any

type events struct {
	mutex    sync.Mutex
	out      *json.Encoder
	identity string
}

func newEvents(identity string) *events {
	return &events{out: json.NewEncoder(os.Stdout), identity: identity}
}

func (e *events) print(event string, more fields) {
	line := fields{"event": event, "identity": e.identity, "time": time.Now().UTC().Format(time.RFC3339Nano)}
	for key, value := range more {
		line[key] = value
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	_ = e.out.Encode(line)
}
