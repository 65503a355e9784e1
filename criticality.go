package isobar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Class is how much it matters that a client's requests are served while a
// service is overloaded. Lower values matter more.
type Class uint8

// The classes, from the one that is shed last.
const (
	ClassCriticalPlus  Class = iota
	ClassCritical            // that of clients of which nothing is said
	ClassSheddablePlus       // served on a best-effort basis
	ClassSheddable           // may be dropped at any time
)

// Classes is how many classes there are.
const Classes = int(ClassSheddable) + 1

// ErrBadClass is wrapped by the errors of [ParseClass].
var ErrBadClass = errors.New("bad class")

var classNames = [Classes]string{"critical_plus", "critical", "sheddable_plus", "sheddable"}

// ClassNames lists the names, from the one that is shed last.
func ClassNames() []string { return slices.Clone(classNames[:]) }

// ParseClass reads a name.
func ParseClass(s string) (Class, error) {
	if i := slices.Index(classNames[:], s); i >= 0 {
		return Class(i), nil //nolint:gosec // below Classes
	}
	return ClassCritical, fmt.Errorf("%w %q: want one of %s", ErrBadClass, s, strings.Join(classNames[:], ", "))
}

// String returns the name.
func (c Class) String() string {
	if int(c) < Classes {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// MarshalText returns the name, for JSON.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Class) UnmarshalText(b []byte) error {
	v, err := ParseClass(string(b))
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// ClientClass gives the class of a client service.
type ClientClass struct {
	Client string `json:"client"` // node.cluster, or the beginning of it before a *
	Class  Class  `json:"class"`
}

// Criticality says which clients' requests are shed first if a service sheds. It is immutable once
// it is part of a [Topology].
type Criticality struct {
	Clients []ClientClass `json:"clients"` // the one that names a client exactly counts, else the longest
	// MaxShed is, by class, the highest fraction of the class's demand that may be dropped, 0 to 1;
	// a class never has a higher value than a less important class.
	MaxShed ClassFractions `json:"max_shed"`
}

// ClassOf returns the class of a client service.
func (c *Criticality) ClassOf(client string) Class {
	if c == nil {
		return ClassCritical
	}
	class, longest := ClassCritical, -1
	for i := range c.Clients {
		x := &c.Clients[i]
		prefix, open := strings.CutSuffix(x.Client, "*")
		switch {
		case !open && x.Client == client:
			return x.Class
		case open && strings.HasPrefix(client, prefix) && len(prefix) > longest:
			class, longest = x.Class, len(prefix)
		}
	}
	return class
}

// Equal reports whether two say the same; nil says nothing.
func (c *Criticality) Equal(o *Criticality) bool {
	if c == o || c == nil || o == nil {
		return c == o
	}
	return c.MaxShed == o.MaxShed && slices.Equal(c.Clients, o.Clients)
}

// ClassDrops is what clients drop by their class.
type ClassDrops struct {
	Criticality *Criticality   `json:"criticality"`
	Drops       ClassFractions `json:"drops"` // fractions of requests, by class
}

// Equal reports whether two say the same.
func (d *ClassDrops) Equal(o *ClassDrops) bool {
	if d == o || d == nil || o == nil {
		return d == o
	}
	return d.Drops == o.Drops && d.Criticality.Equal(o.Criticality)
}

// Dropping returns the assignment as clients get it that drop another part of
// their requests than those of which nothing is said.
func (a *Assignment) Dropping(drop float64) *Assignment {
	if a.Drop == drop {
		return a
	}
	out := *a
	out.Drop = drop
	return &out
}

// ClassFractions is a fraction of requests for each class.
type ClassFractions [Classes]float64

// MarshalJSON writes an object with the names of the classes.
func (f ClassFractions) MarshalJSON() ([]byte, error) {
	out := make(map[string]float64, Classes)
	for c, v := range f {
		out[classNames[c]] = v
	}
	return json.Marshal(out)
}

// UnmarshalJSON is the inverse of MarshalJSON; classes that are left out are 0.
func (f *ClassFractions) UnmarshalJSON(b []byte) error {
	var in map[Class]float64
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*f = ClassFractions{}
	for c, v := range in { //isobar:sorted each key has a place of its own
		f[c] = v
	}
	return nil
}
