package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// analysed are the resources that an analysis reads, with their paths.
var analysed = []struct {
	group, resource string
	namespaced      bool
}{
	{"/api/v1", "services", true}, {"/api/v1", "nodes", false}, {"/apis/discovery.k8s.io/v1", "endpointslices", true},
	{"/apis/isobar.dev/v1alpha1", "loadbalancingpolicies", true},
	{"/apis/apps/v1", "deployments", true}, {"/apis/apps/v1", "statefulsets", true}, {"/apis/apps/v1", "daemonsets", true},
	{"/apis/rbac.authorization.k8s.io/v1", "clusterroles", false}, {"/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", false},
	{"/apis/rbac.authorization.k8s.io/v1", "roles", true}, {"/apis/rbac.authorization.k8s.io/v1", "rolebindings", true},
}

// ReadCluster adds the objects of a cluster, with the caller's credentials. It
// names what may not be read, of which the findings then say nothing.
func (a *Analysis) ReadCluster(ctx context.Context) (unread []Finding, err error) {
	c, err := connect(&a.cfg.Cluster)
	if err != nil {
		return nil, err
	}
	namespaces := a.cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, r := range analysed {
		where := namespaces
		if !r.namespaced {
			where = []string{""}
		} else if a.cfg.Lease != "" && strings.HasPrefix(r.resource, "role") && where[0] != "" {
			own, _, _ := strings.Cut(a.serviceAccount, "/")
			where = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(where), own))))
		}
		for _, namespace := range where {
			path := r.group
			if namespace != "" {
				path += "/namespaces/" + namespace
			}
			data, err := c.parts[corev1.SchemeGroupVersion].Get().AbsPath(path, r.resource).SetHeader("Accept", "application/json").Do(ctx).Raw()
			switch {
			case apierrors.IsNotFound(err) && r.resource == "loadbalancingpolicies":
				unread = append(unread, Finding{
					Object: "cluster", Message: "it does not have the custom resource LoadBalancingPolicy: apply deploy/kubernetes/crds",
					Warning: !a.cfg.Policies,
				})
				continue
			case apierrors.IsForbidden(err):
				unread = append(unread, Finding{
					Object: "cluster", Message: fmt.Sprintf("not analyzed: your credentials may not list %s: %v", r.resource, err), Warning: true,
				})
				continue
			case err != nil:
				return nil, fmt.Errorf("list %s: %w", r.resource, err)
			}
			if err := a.Add(data); err != nil {
				return nil, err
			}
		}
	}
	return slices.Clip(unread), nil
}
