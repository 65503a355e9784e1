// Package resource makes xDS resources from Isobar's own values and reads those of
// others. What comes in is bounded and checked field by field; what goes out keeps
// the rules of every kind of client at once.
package resource

import (
	"net/url"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// Kind is a kind of xDS resource. The order of the kinds is the order in which
// one push sends them: what is referred to goes before what refers to it.
type Kind uint8

// The kinds that Isobar serves, and Other for every type that it does not.
const (
	Cluster Kind = iota
	Endpoints
	Listener
	Route
	Other
)

// Kinds counts the kinds that are served.
const Kinds = int(Other)

// TypePrefix begins all type URLs.
const TypePrefix = "type.googleapis.com/"

// Type URLs of the resources that are served.
const (
	ClusterURL   = TypePrefix + "envoy.config.cluster.v3.Cluster"
	EndpointsURL = TypePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerURL  = TypePrefix + "envoy.config.listener.v3.Listener"
	RouteURL     = TypePrefix + "envoy.config.route.v3.RouteConfiguration"
)

// Type URLs of the same resources in v2, and in 2017.
const (
	ClusterURLv2   = TypePrefix + "envoy.api.v2.Cluster"
	EndpointsURLv2 = TypePrefix + "envoy.api.v2.ClusterLoadAssignment"
	ListenerURLv2  = TypePrefix + "envoy.api.v2.Listener"
	RouteURLv2     = TypePrefix + "envoy.api.v2.RouteConfiguration"
)

var (
	kindURLs = [rpc.APIVersions][Kinds]string{
		rpc.V3:    {ClusterURL, EndpointsURL, ListenerURL, RouteURL},
		rpc.V2:    {ClusterURLv2, EndpointsURLv2, ListenerURLv2, RouteURLv2},
		rpc.V2017: {ClusterURLv2, EndpointsURLv2, ListenerURLv2, RouteURLv2},
	}
	kindNames = [...]string{"cds", "eds", "lds", "rds", "other"}
)

// KindOf returns the kind of a type URL; Other when Isobar does not serve it.
func KindOf(url string) Kind {
	k, _ := ParseURL(url)
	return k
}

// ParseURL returns the kind that a type URL names, and in which API version: V3 or V2,
// since the URLs of 2017 are those of v2.
func ParseURL(url string) (Kind, rpc.APIVersion) {
	for _, f := range [...]rpc.APIVersion{rpc.V3, rpc.V2} {
		if i := slices.Index(kindURLs[f][:], url); i >= 0 {
			return Kind(i), f //nolint:gosec // i < 4
		}
	}
	return Other, rpc.V3
}

// URL returns the type URL of a kind that is served, in v3, else "".
func (k Kind) URL() string { return k.URLIn(rpc.V3) }

// URLIn returns the type URL of a kind that is served in an API version, else "".
func (k Kind) URLIn(f rpc.APIVersion) string {
	if int(k) < Kinds && int(f) < rpc.APIVersions {
		return kindURLs[f][k]
	}
	return ""
}

// String returns the short name of the discovery service of the kind; it is
// bounded and fit for a metric label.
func (k Kind) String() string { return kindNames[min(int(k), len(kindNames)-1)] }

// FullSet reports whether a state-of-the-world response of this kind must hold
// everything that is subscribed, because clients delete what is absent. Only
// such kinds have wildcard subscriptions.
func (k Kind) FullSet() bool { return k == Cluster || k == Listener }

// Wildcard is the resource name that subscribes to all of a kind.
const Wildcard = "*"

// baseName returns the last part of a type URL, for messages.
func baseName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

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

// xdstpScheme begins the names of the form
// xdstp://AUTHORITY/TYPE/ID?CONTEXT#DIRECTIVES. They let a client that has
// another control plane get some of its resources here.
const xdstpScheme = "xdstp://"

// ServiceOf returns the name of the service that a resource name of a kind stands
// for. Names other than xdstp names are the service's own. Of an xdstp name the
// last part counts, whatever the authority: who asks here for it has been told
// that this is the place. It is "" when the name is not of the kind.
func ServiceOf(kind Kind, name string) string {
	if !IsXDSTP(name) {
		return name
	}
	message, id, ok := splitXDSTP(name)
	if !ok || message != strings.TrimPrefix(kind.URL(), TypePrefix) {
		return ""
	}
	return id
}

// ReportedService returns the name of the service that a name in a load report
// stands for: the name of a cluster or of an assignment.
func ReportedService(name string) string {
	if !IsXDSTP(name) {
		return name
	}
	_, id, _ := splitXDSTP(name)
	return id
}

func splitXDSTP(name string) (message, id string, ok bool) {
	rest := strings.TrimPrefix(name, xdstpScheme)
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	_, rest, ok = strings.Cut(rest, "/") // after the authority
	if !ok {
		return "", "", false
	}
	message, id, ok = strings.Cut(rest, "/")
	if !ok {
		return "", "", false
	}
	id, err := url.PathUnescape(id)
	return message, id, err == nil && id != ""
}

// Renamed returns the name under which another kind of resource of the same
// service goes with a name: of the same authority and context when that is an
// xdstp name, else the name itself.
func Renamed(name string, kind Kind) string {
	if !IsXDSTP(name) {
		return name
	}
	authority, rest, _ := strings.Cut(strings.TrimPrefix(name, xdstpScheme), "/")
	_, rest, _ = strings.Cut(rest, "/") // after the type
	return xdstpScheme + authority + "/" + strings.TrimPrefix(kind.URL(), TypePrefix) + "/" + rest
}

// IsXDSTP reports whether a name has the form of an xdstp name.
func IsXDSTP(name string) bool { return strings.HasPrefix(name, xdstpScheme) }
