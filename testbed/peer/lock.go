package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// newLock makes the only kind of lock that client-go still has.
func newLock(s settings, client kubernetes.Interface) (resourcelock.Interface, error) {
	if s.lock != resourcelock.LeasesResourceLock {
		return nil, fmt.Errorf("no lock on %s", s.lock)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: s.lease},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.identity},
	}, nil
}
