package resource

import (
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

// KindOf gives the kind of a type URL; Other when Isobar does not serve it.
func KindOf(url string) Kind {
	k, _ := ParseURL(url)
	return k
}

// ParseURL gives the kind that a type URL names, and in which form: V3 or V2,
// since the URLs of 2017 are those of v2.
func ParseURL(url string) (Kind, rpc.APIVersion) {
	for _, f := range [...]rpc.APIVersion{rpc.V3, rpc.V2} {
		if i := slices.Index(kindURLs[f][:], url); i >= 0 {
			return Kind(i), f //nolint:gosec // i < 4
		}
	}
	return Other, rpc.V3
}

// URL gives the type URL of a kind that is served, in v3, else "".
func (k Kind) URL() string { return k.URLIn(rpc.V3) }

// URLIn gives the type URL of a kind that is served in a form, else "".
func (k Kind) URLIn(f rpc.APIVersion) string {
	if int(k) < Kinds && int(f) < rpc.APIVersions {
		return kindURLs[f][k]
	}
	return ""
}

// String gives the short name of the discovery service of the kind; it is
// bounded and fit for a metric label.
func (k Kind) String() string { return kindNames[min(int(k), len(kindNames)-1)] }

// FullSet tells whether a state-of-the-world response of this kind must hold
// everything that is subscribed, because clients delete what is absent. Only
// such kinds have wildcard subscriptions.
func (k Kind) FullSet() bool { return k == Cluster || k == Listener }

// Wildcard is the resource name that subscribes to all of a kind.
const Wildcard = "*"

// baseName gives the last part of a type URL, for messages.
func baseName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }
