package isobar

import (
	"errors"
	"time"
)

// Sentinel errors that cross packages. They are wrapped with the object's name
// and mapped to HTTP and gRPC codes only at the edge.
var (
	// ErrNotFound says that there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrOwned says that the object belongs to another owner (file or API).
	ErrOwned = errors.New("owned by another")
	// ErrStale says that the object has changed since the revision given.
	ErrStale = errors.New("stale revision")
	// ErrInvalid says that the input breaks a rule; the text names place and fix.
	ErrInvalid = errors.New("invalid")
)

// The owners of a service.
const (
	OwnerFile = "file"
	OwnerAPI  = "api"
	OwnerXDS  = "xds" // another control plane, by `source` of the configuration file
)

// Object is a service with its owner and revision.
type Object struct {
	Service  Service `json:"service"`
	Owner    string  `json:"owner"`    // OwnerFile, OwnerAPI or OwnerXDS
	Revision uint64  `json:"revision"` // changes with each change of the object; its ETag
}

// HealthOverride is the health of one endpoint as an operator set it, in place
// of what the configuration and checkers say.
type HealthOverride struct {
	Service  string       `json:"service"`
	Address  string       `json:"address"`
	Locality Locality     `json:"locality"` // zero while no configuration names the endpoint
	Status   HealthStatus `json:"status"`
	Since    time.Time    `json:"since,omitzero"` // zero: not known
}
