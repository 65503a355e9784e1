// Package kubernetes tests Isobar against a real kube-apiserver, a real
// kube-controller-manager and a real etcd, which `make test-kubernetes` builds from the
// module servers. The tests are scheduler and kubelet: they bind Pods and write their
// status.
package kubernetes
