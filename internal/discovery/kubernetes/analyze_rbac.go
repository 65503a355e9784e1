package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rbac is the roles and bindings of a cluster or of files.
type rbac struct {
	roles    map[string][]rbacRule // by kind, namespace and name
	bindings []rbacObject
}

// rbacObject is what counts of roles and bindings.
type rbacObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Rules    []rbacRule        `json:"rules"`
	RoleRef  struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"roleRef"` //nolint:tagliatelle // as Kubernetes calls it
	Subjects []struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"subjects"`
}

type rbacRule struct {
	Groups    []string `json:"apiGroups"` //nolint:tagliatelle // as Kubernetes calls it
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
	Names     []string `json:"resourceNames"` //nolint:tagliatelle // as Kubernetes calls it
}

func roleKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func (r *rbac) add(kind string, o *rbacObject) {
	if strings.HasSuffix(kind, "Binding") {
		r.bindings = append(r.bindings, *o)
		return
	}
	if r.roles == nil {
		r.roles = map[string][]rbacRule{}
	}
	r.roles[roleKey(kind, o.Metadata.Namespace, o.Metadata.Name)] = o.Rules
}

// found names the permissions that the service account lacks. Without any role nothing
// is known of permissions.
func (r *rbac) found(cfg *Config, serviceAccount string) (out []Finding) {
	if len(r.roles) == 0 {
		return nil
	}
	namespaces := cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, p := range Permissions(cfg.Policies) {
		where := namespaces
		if p.Resource == "nodes" {
			where = []string{""}
		}
		for _, namespace := range where {
			out = append(out, r.lack(serviceAccount, namespace, &p)...)
		}
	}
	if cfg.Lease != "" {
		own, _, _ := strings.Cut(serviceAccount, "/")
		for _, p := range leasePermissions(cfg.Lease) {
			out = append(out, r.lack(serviceAccount, own, &p)...)
		}
	}
	return out
}

// lack names what of a permission is missing in a namespace.
func (r *rbac) lack(serviceAccount, namespace string, p *Permission) (out []Finding) {
	for _, verb := range p.Verbs {
		if !r.allows(serviceAccount, namespace, p, verb) {
			out = append(out, lacking(p, verb, namespace, serviceAccount))
		}
	}
	return out
}

func lacking(p *Permission, verb, namespace, serviceAccount string) Finding {
	role, of := "a ClusterRole", ""
	if namespace != "" {
		role, of = "a Role in namespace "+namespace, " in namespace "+namespace
	}
	return Finding{
		Object:  "ServiceAccount " + serviceAccount,
		Message: fmt.Sprintf("it may not %s %s%s: add {apiGroups: [%q], resources: [%s], verbs: [%s]} to %s", verb, p.Resource, of, p.Group, p.Resource, verb, role),
		Warning: p.Optional,
	}
}

// allows reports whether a service account may use a resource in a namespace; empty = in
// all namespaces, and for what belongs to none.
func (r *rbac) allows(serviceAccount, namespace string, p *Permission, verb string) bool {
	owner, name, _ := strings.Cut(serviceAccount, "/")
	for i := range r.bindings {
		b := &r.bindings[i]
		if b.Metadata.Namespace != "" && b.Metadata.Namespace != namespace {
			continue
		}
		bound := false
		for _, s := range b.Subjects {
			bound = bound || s.Kind == "ServiceAccount" && s.Name == name && s.Namespace == owner ||
				s.Kind == "Group" && (s.Name == "system:serviceaccounts" || s.Name == "system:serviceaccounts:"+owner || s.Name == "system:authenticated")
		}
		in := b.Metadata.Namespace
		if b.RoleRef.Kind == "ClusterRole" {
			in = ""
		}
		if bound && slices.ContainsFunc(r.roles[roleKey(b.RoleRef.Kind, in, b.RoleRef.Name)], func(rule rbacRule) bool { return rule.allows(p, verb) }) {
			return true
		}
	}
	return false
}

func (r *rbacRule) allows(p *Permission, verb string) bool {
	has := func(list []string, want string) bool {
		return slices.Contains(list, want) || slices.Contains(list, "*")
	}
	named := len(r.Names) == 0 || p.Name != "" && slices.Contains(r.Names, p.Name)
	return named && has(r.Groups, p.Group) && has(r.Resources, p.Resource) && has(r.Verbs, verb)
}
