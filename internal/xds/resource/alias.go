package resource

import (
	"net/url"
	"strings"
)

// clusterSuffixes end the DNS names of Kubernetes Services. Other domains of clusters
// than the default one have the short form.
var clusterSuffixes = [...]string{".svc.cluster.local", ".svc"}

// AliasOf returns the service that the DNS name of a Kubernetes Service stands for:
// SERVICE.NAMESPACE:PORT for SERVICE.NAMESPACE.svc.cluster.local:PORT and
// SERVICE.NAMESPACE.svc:PORT, "" for every other name. A service that has the name
// itself goes first. Only listeners and assignments have aliases: what a listener leads
// to has the name of the service.
func AliasOf(name string) string {
	host, port, ok := strings.Cut(name, ":")
	if !ok || port == "" || strings.Contains(name, "/") {
		return ""
	}
	for _, suffix := range clusterSuffixes {
		short, found := strings.CutSuffix(host, suffix)
		if !found {
			continue
		}
		service, namespace, ok := strings.Cut(short, ".")
		if !ok || service == "" || namespace == "" || strings.Contains(namespace, ".") {
			return ""
		}
		return short + ":" + port
	}
	return ""
}

// HasAliases reports whether clients may ask for resources of a kind by an alias: the
// listener that gRPC clients dial, and the assignment that an Envoy's own cluster names.
func HasAliases(kind Kind) bool { return kind == Listener || kind == Endpoints }

// NamedOtherwise reports whether a resource of a kind has another name than its
// service: an xdstp name or an alias.
func NamedOtherwise(kind Kind, name string) bool {
	return IsXDSTP(name) || HasAliases(kind) && AliasOf(name) != ""
}

// routesOf returns the name of the routes that a listener leads to. They have the
// listener's authority and context if its name is an xdstp name, and the name of the
// service even if the listener has an alias.
func routesOf(listener, service string) string {
	switch id := ServiceOf(Listener, listener); {
	case id == service:
		return Renamed(listener, Route)
	case !IsXDSTP(listener):
		return service
	default:
		rest, directives, _ := strings.Cut(Renamed(listener, Route), "#")
		rest, context, _ := strings.Cut(rest, "?")
		name := rest[:strings.LastIndexByte(rest, '/')+1] + url.PathEscape(service)
		if context != "" {
			name += "?" + context
		}
		if directives != "" {
			name += "#" + directives
		}
		return name
	}
}
