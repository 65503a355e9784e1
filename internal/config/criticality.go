package config

import (
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// maxClientClasses bounds the clients of a criticality.
const maxClientClasses = 1000

var classShedRange = strict.Range{Max: 1, LargeHint: "it is a fraction: write 0.05 for 5%"}

// criticalityField reads whose requests are dropped first, and where that is
// said.
func criticalityField(into **isobar.Criticality, at **strict.Value) strict.Field {
	return strict.Field{Name: "criticality", Read: func(v strict.Value) { *at, *into = &v, readCriticality(v) }}
}

// checkCriticality warns of classes that make no difference.
func checkCriticality(at *strict.Value, s *isobar.Service) {
	if at != nil && s.MaxShed == 0 {
		at.Warnf("give max_shed to the service, or remove it", "criticality has no effect without max_shed: nothing is dropped")
	}
}

// readCriticality reads whose requests are dropped first.
func readCriticality(v strict.Value) *isobar.Criticality {
	c := &isobar.Criticality{MaxShed: unsetShed}
	v.Object([]strict.Field{
		{Name: "clients", Required: true, Read: func(v strict.Value) { c.Clients = readClientClasses(v) }},
		{Name: "max_shed", Read: func(v strict.Value) { readClassShed(v, &c.MaxShed) }},
	})
	// A class of which nothing is said is shed as the next one that matters less.
	next := 1.0
	for k := isobar.Classes - 1; k >= 0; k-- {
		if c.MaxShed[k] < 0 {
			c.MaxShed[k] = next
		}
		next = c.MaxShed[k]
	}
	return c
}

// unsetShed marks the classes of which nothing is said.
var unsetShed = isobar.ClassFractions{-1, -1, -1, -1}

func readClientClasses(v strict.Value) []isobar.ClientClass {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("name the client services (node.cluster) and their classes", "is empty")
	}
	if len(items) > maxClientClasses {
		v.Errorf("name those of one kind together, with a * at the end", "%d clients, want at most %d", len(items), maxClientClasses)
		return nil
	}
	var out []isobar.ClientClass
	lines := map[string]int{}
	for _, item := range items {
		x, named := isobar.ClientClass{Class: isobar.ClassCritical}, false
		item.Object([]strict.Field{
			{Name: "client", Required: true, Read: func(v strict.Value) {
				s, ok := v.Text()
				if !ok {
					return
				}
				line, twice := lines[s]
				switch {
				case s == "" || !printable(s) || strings.Contains(strings.TrimSuffix(s, "*"), "*"):
					v.Errorf("write the node.cluster of the clients, or its beginning and a * at the end", "%q names no clients", s)
				case twice:
					v.Errorf("keep one of them", "client %s is given twice, first in line %d", s, line)
				default:
					x.Client, named = s, true
					lines[s] = v.Pos().Line
				}
			}},
			{Name: "class", Required: true, Read: func(v strict.Value) {
				if s, ok := v.Enum(isobar.ClassNames()...); ok {
					x.Class, _ = isobar.ParseClass(s)
				}
			}},
		})
		if named {
			out = append(out, x)
		}
	}
	return out
}

// readClassShed reads the most that may be dropped of each class: never more of
// one than of those that matter less.
func readClassShed(v strict.Value, into *isobar.ClassFractions) {
	names := isobar.ClassNames()
	var fields []strict.Field
	lowest, of := 1.0, ""
	for k := len(names) - 1; k >= 0; k-- { // read from the one that is shed first
		fields = append(fields, strict.Field{Name: names[k], Read: func(v strict.Value) {
			x, ok := v.Float(classShedRange)
			if !ok {
				return
			}
			if x > lowest {
				v.Errorf("lower it, or raise that", "%g is more than of %s, which matters less", x, of)
				return
			}
			into[k], lowest, of = x, x, names[k]
		}})
	}
	v.Object(fields)
}
