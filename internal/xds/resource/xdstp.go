package resource

import (
	"net/url"
	"strings"
)

// xdstpScheme begins the names of the form
// xdstp://AUTHORITY/TYPE/ID?CONTEXT#DIRECTIVES. They let a client that has
// another control plane get some of its resources here.
const xdstpScheme = "xdstp://"

// ServiceOf gives the name of the service that a resource name of a kind stands
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

// ReportedService gives the name of the service that a name in a load report
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

// Renamed gives the name under which another kind of resource of the same
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

// IsXDSTP tells whether a name has the form of an xdstp name.
func IsXDSTP(name string) bool { return strings.HasPrefix(name, xdstpScheme) }
