package wire

import (
	"slices"
	"strings"
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

const typePrefix = "type.googleapis.com/"

// Type URLs of the resources that are served.
const (
	ClusterURL   = typePrefix + "envoy.config.cluster.v3.Cluster"
	EndpointsURL = typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerURL  = typePrefix + "envoy.config.listener.v3.Listener"
	RouteURL     = typePrefix + "envoy.config.route.v3.RouteConfiguration"
)

var (
	kindURLs  = [...]string{ClusterURL, EndpointsURL, ListenerURL, RouteURL}
	kindNames = [...]string{"cds", "eds", "lds", "rds", "other"}
)

// KindOf gives the kind of a type URL; Other when Isobar does not serve it.
func KindOf(url string) Kind {
	if i := slices.Index(kindURLs[:], url); i >= 0 {
		return Kind(i) //nolint:gosec // i < 4
	}
	return Other
}

// URL gives the type URL of a kind that is served, else "".
func (k Kind) URL() string {
	if int(k) < len(kindURLs) {
		return kindURLs[k]
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
