package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Pause says that an operator froze the weights of a service, or of all: Isobar makes no decisions,
// but still applies changes of topology and health.
type Pause struct {
	Service string    `json:"service,omitempty"` // empty: all services
	Who     string    `json:"who,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since"`
}

// String tells it in one line.
func (p Pause) String() string {
	var b strings.Builder
	b.WriteString("paused")
	if p.Who != "" {
		b.WriteString(" by " + p.Who)
	}
	b.WriteString(" since " + p.Since.UTC().Format(time.RFC3339))
	if p.Reason != "" {
		b.WriteString(": " + p.Reason)
	}
	return b.String()
}

// Pauses is what is paused, sorted by service; that of all services comes
// first. Immutable.
type Pauses []Pause

// ErrAllPaused says that one service can't be resumed alone.
var ErrAllPaused = errors.New("all services are paused together")

// ErrNonePaused says that there is no pause to take back.
var ErrNonePaused = errors.New("no service is paused")

// maxPauses bounds a list of pauses; far beyond the number of services.
const maxPauses = 100_000

// For finds what pauses a service: its own pause, else that of all.
func (p Pauses) For(service string) (Pause, bool) {
	if i, ok := p.find(service); ok {
		return p[i], true
	}
	if i, ok := p.find(""); ok {
		return p[i], true
	}
	return Pause{}, false
}

func (p Pauses) find(service string) (int, bool) {
	return slices.BinarySearchFunc(p, service, func(x Pause, name string) int { return strings.Compare(x.Service, name) })
}

// With adds a pause, in place of one of the same service.
func (p Pauses) With(add ...Pause) Pauses {
	out := slices.Clone(p)
	for _, x := range add {
		i, ok := out.find(x.Service)
		switch {
		case ok:
			out[i] = x
		case len(out) < maxPauses:
			out = slices.Insert(out, i, x)
		}
	}
	return out
}

// Without takes the pause of a service back; all of them for an empty name. It
// returns the pauses that it took back, and those that remain. The error wraps
// [isobar.ErrNotFound] where the service has no pause, [ErrAllPaused] where all
// services are paused together, and [ErrNonePaused] for an empty name where there is no pause.
func (p Pauses) Without(service string) (resumed, remaining Pauses, err error) {
	switch i, ok := p.find(service); {
	case service == "" && len(p) == 0:
		return nil, p, ErrNonePaused
	case service == "":
		return p, nil, nil
	case ok:
		return Pauses{p[i]}, slices.Delete(slices.Clone(p), i, i+1), nil
	}
	if _, all := p.find(""); all {
		return nil, p, fmt.Errorf("service %q: %w", service, ErrAllPaused)
	}
	return nil, p, fmt.Errorf("service %q is not paused: %w", service, isobar.ErrNotFound)
}

// samePause compares what holds a service before and after.
func samePause(before *Pause, after Pause, paused bool) bool {
	if before == nil || !paused {
		return (before != nil) == paused
	}
	return before.Service == after.Service && before.Who == after.Who && before.Reason == after.Reason && before.Since.Equal(after.Since)
}

// CountPaused counts the services that are paused.
func CountPaused(services []*Service) int {
	n := 0
	for _, s := range services {
		if s.Paused != nil {
			n++
		}
	}
	return n
}
