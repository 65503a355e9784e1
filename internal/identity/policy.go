package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Rule gives those whom its pattern matches roles, in some localities.
type Rule struct {
	Match      Pattern
	Roles      Role
	Localities []LocalityPattern // none = any
}

// Policy is a list of rules. A peer has what any of them gives it. An empty
// policy allows everything to everyone.
type Policy []Rule

// Reasons for which a policy refuses. Every error of a policy wraps one.
var (
	ErrAnonymous = errors.New("no client certificate was presented")
	ErrUnknown   = errors.New("no identity in the configuration matches")
	ErrRole      = errors.New("role not allowed")
	ErrLocality  = errors.New("locality not allowed")
)

// CheckRole tells whether a peer, which may be nil, may act in a role
// somewhere.
func (p Policy) CheckRole(peer *Peer, role Role) error {
	if len(p) == 0 {
		return nil
	}
	if peer == nil {
		return fmt.Errorf("%w, and role %s asks for one", ErrAnonymous, role)
	}
	var has Role
	matched := false
	for i := range p {
		if p[i].Match.Matches(peer) {
			matched = true
			has |= p[i].Roles
		}
	}
	switch {
	case !matched:
		return fmt.Errorf("%w %s, which asks for role %s", ErrUnknown, peer.name, role)
	case !has.Has(role):
		return fmt.Errorf("%s may not act as %s: %w, it has %s", peer.name, role, ErrRole, has)
	}
	return nil
}

// Check tells whether a peer may act in a role in a locality.
func (p Policy) Check(peer *Peer, role Role, l isobar.Locality) error {
	if err := p.CheckRole(peer, role); err != nil || len(p) == 0 {
		return err
	}
	var allowed []string
	for i := range p {
		r := &p[i]
		if !r.Roles.Has(role) || !r.Match.Matches(peer) {
			continue
		}
		if len(r.Localities) == 0 || slices.ContainsFunc(r.Localities, func(x LocalityPattern) bool { return x.Matches(l) }) {
			return nil
		}
		for _, x := range r.Localities {
			allowed = append(allowed, x.String())
		}
	}
	return fmt.Errorf("%s may not act as %s in locality %.300q: %w, it may in %s", peer.name, role, l.String(), ErrLocality, shown(allowed))
}

// shown bounds a list in a message.
func shown(list []string) string {
	const most = 10
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}
