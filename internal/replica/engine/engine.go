// Package engine is the interface for mutual exclusion: at most one replica of a group leads
// while the engine says so, and one claim is the newest. The engines are in packages beneath this
// one; enginetest holds each of them to the same rules.
package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// Engine runs the requests of one replica. A request that is refused is no error:
// the standing has the leader and the claim. After an error it is unknown
// whether the operation happened.
//
//	read     changes nothing
//	acquire  takes leadership if no replica has it; its answer to the holder renews
//	renew    prolongs leadership, if this replica has it
//	claim    writes Claim, if this replica leads and Previous is the present claim
//	release  gives leadership up, if this replica has it
//
// An Engine is used by one goroutine at a time.
type Engine interface {
	Do(ctx context.Context, r group.Request) (group.Standing, error)
	// Changed signals that leadership may be free. Capacity 1. nil where the engine
	// can't tell.
	Changed() <-chan struct{}
	Close() error
}

// maxIdentityBytes bounds an encoded identity.
const maxIdentityBytes = 1024

// EncodeIdentity returns the identity as engines keep it.
func EncodeIdentity(i group.Identity) ([]byte, error) { return json.Marshal(i) }

// DecodeIdentity decodes the result of EncodeIdentity; empty data is no replica.
func DecodeIdentity(data []byte) (group.Identity, error) {
	var i group.Identity
	if len(data) == 0 {
		return i, nil
	}
	if len(data) > maxIdentityBytes {
		return i, fmt.Errorf("the leader's identity has %d bytes, at most %d are allowed", len(data), maxIdentityBytes)
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return group.Identity{}, fmt.Errorf("the leader's identity: %w", err)
	}
	return i, nil
}
