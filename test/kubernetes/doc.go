// Package kubernetes tests Isobar against a real kube-apiserver, a real etcd and four
// controllers of kube-controller-manager, which `make test-kubernetes` builds from the
// module servers. The tests are scheduler and kubelet: they bind Pods and write their
// status.
package kubernetes
