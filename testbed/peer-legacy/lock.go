package main

import (
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// newLock makes any of the locks of the time: configmaps, endpoints, leases, configmapsleases, endpointsleases.
func newLock(s settings, client kubernetes.Interface) (resourcelock.Interface, error) {
	config := resourcelock.ResourceLockConfig{Identity: s.identity}
	return resourcelock.New(s.lock, s.namespace, s.lease, client.CoreV1(), client.CoordinationV1(), config)
}
