package isobar

import (
	"errors"
)

// Sentinel errors that cross packages. They are wrapped with the object's name
// and mapped to HTTP and gRPC codes only at the edge.
var (
	// ErrNotFound says that there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrOwned says that the object belongs to another owner: see [Object].
	ErrOwned = errors.New("owned by another")
	// ErrStale says that the object has changed since the revision given.
	ErrStale = errors.New("stale revision")
	// ErrInvalid says that the input breaks a rule; the text names place and fix.
	ErrInvalid = errors.New("invalid")
	// ErrUnavailable says that something else must answer first; the same request may
	// succeed later.
	ErrUnavailable = errors.New("unavailable")
)
