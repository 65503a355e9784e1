// Package table turns the Services, EndpointSlices and Nodes of a Kubernetes
// cluster into services of Isobar: one for each TCP port of a Service, named
// SERVICE.NAMESPACE:PORT, with the endpoints that may get requests.
//
// It is pure: objects go in as they come, in any order, and what they amount to
// comes out; the time is an argument.
package table

import (
	"fmt"
	"net/netip"

	"github.com/isobar-xds/isobar"
)

// Key names an object of a namespace.
type Key struct{ Namespace, Name string }

// String names the object as kubectl does.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Family is an IP family.
type Family uint8

// The families.
const (
	AnyFamily  Family = iota // of a Service that names none
	IPv4                     //
	IPv6                     //
	NoIPFamily               // of slices with host names, which are not used
)

// Port is a TCP port with its name, which may be empty.
type Port struct {
	Name   string
	Number uint16
}

// Service is what counts of a Service. It is not changed after it was handed over.
type Service struct {
	Key

	Family Family // the first of the Service; addresses of the others are the same Pods
	Ports  []Port // TCP only
	// Unselected tells that the selector leaves the Service out: only ports with a
	// policy are served.
	Unselected bool
}

// ServiceName is what Isobar calls a port of a Service.
func ServiceName(k Key, port uint16) string {
	return fmt.Sprintf("%s.%s:%d", k.Name, k.Namespace, port)
}

// Slice is what counts of an EndpointSlice. It is not changed after it was
// handed over.
type Slice struct {
	Key

	Service   string // the name of its Service, in the same namespace
	Family    Family
	Version   uint64 // its resource version; 0 = not known
	Ports     []Port // what the Service's ports are called, and their numbers on the endpoints
	Endpoints []Endpoint
}

// Endpoint is one entry of an EndpointSlice.
type Endpoint struct {
	UID         string     // of the Pod; empty = it is no Pod, and its address stands for it
	Address     netip.Addr // the zero Addr = it can't be read
	Zone        string     // empty = as its Node
	Node        string     // empty = not known
	State       State
	Terminating bool
}

// id tells endpoints of a Service apart.
func (e *Endpoint) id() string {
	if e.UID != "" {
		return e.UID
	}
	return e.Address.String()
}

// State says what an endpoint is good for.
type State uint8

// The states; a larger one is better.
const (
	NotReady State = iota
	Draining       // it serves, and is about to end
	Ready
)

// StateOf reads the conditions of an endpoint, of which each may be missing.
// Ready counts also while the endpoint terminates: so it is where a Service
// publishes addresses that are not ready.
func StateOf(ready, serving, terminating *bool) State {
	isReady := ready == nil || *ready
	serves := isReady
	if serving != nil {
		serves = *serving
	}
	switch {
	case isReady:
		return Ready
	case serves && terminating != nil && *terminating:
		return Draining
	default:
		return NotReady
	}
}

// Node is what counts of a Node: its labels topology.kubernetes.io/region and zone.
type Node struct{ Name, Region, Zone string }

// Places says where endpoints are of which the cluster does not say it.
type Places struct {
	Regions map[string]string // by zone, where no Node tells the region
	// Default is where endpoints without a zone are, and its region that of zones
	// without one; zero = such endpoints are left out.
	Default isobar.Locality
}

// Listed is what the cluster says of one port of a Service.
type Listed struct {
	Name       string
	Localities []isobar.ServiceLocality // Locality and Endpoints alone; sorted, each with endpoints
	Counts     Counts
	Reason     string   // why the first of those that are left out is; empty = none is
	Policy     *Applied // nil = none is in force
}

// Counts says what became of the endpoints that slices list, each counted once.
type Counts struct {
	Ready    int // healthy
	Draining int // end soon; used only where nothing is ready
	Held     int // not ready any more, with most others at once: used where nothing else is left
	NotReady int // listed in slices and not used
	LeftOut  int // can't be used
}
