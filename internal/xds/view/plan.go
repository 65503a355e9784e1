package view

import (
	"github.com/isobar-xds/isobar"
)

// Plan is what a set of views is made from. It is immutable, and its methods
// may be called from several goroutines at once for as long as the set is used.
type Plan interface {
	// VersionString is the version as clients get it.
	VersionString() string
	// ServiceNames lists the services, sorted and unique. The slice is not
	// changed by anybody.
	ServiceNames() []string
	// Spec gives a service; nil when there is none of that name.
	Spec(name string) *isobar.Service
	// RequestLimit gives how many requests each client of a service may have in
	// progress; 0 = no limit.
	RequestLimit(name string) uint32
	// Awaited lists services of which nothing is decided, since their endpoints
	// are not known yet, sorted and unique; none of them is a service of the plan.
	Awaited() []isobar.Service
	// Assignment gives what the clients of a service in a source locality
	// get; nil when there is no such service. Between plans the pointer stays
	// the same while nothing in it changes: only then encoding is spared.
	Assignment(service string, source isobar.Locality) *isobar.Assignment
	// Basis gives what all assignments of a service follow from: where it is equal
	// in two plans, they are, and need not be compared. It is comparable; nil is
	// equal to nothing.
	Basis(service string) any
}

// Refusal is a resource that broke a rule and was therefore not sent; the last
// good one stays.
type Refusal struct {
	Service string
	Source  isobar.Locality // zero for what does not depend on it
	Type    string          // cds, eds, lds or rds
	Err     error           // wraps rpc.ErrRefused
}
