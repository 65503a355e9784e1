package sim

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// ClassShare is what becomes of the requests of one class of clients.
type ClassShare struct {
	Class  isobar.Class `json:"class"`
	Shed   float64      `json:"shed"`   // share that its clients drop as told
	Failed float64      `json:"failed"` // share that met dead endpoints, or timed out
}

// classTotals sums up requests of one class.
type classTotals struct{ sent, shed, failed float64 }

func (t *classTotals) add(sent, shed, failed float64) {
	t.sent += sent
	t.shed += shed
	t.failed += failed
}

// byClass tells of the classes that sent anything.
func (t *totals) byClass() []ClassShare {
	var out []ClassShare
	for c := range t.classes {
		if x := &t.classes[c]; x.sent > 0 {
			out = append(out, ClassShare{Class: isobar.Class(c), Shed: x.shed / x.sent, Failed: x.failed / x.sent})
		}
	}
	return out
}

// toldDrop is the part of its requests that an assignment lets a class drop.
func toldDrop(a *isobar.Assignment, class isobar.Class) float64 {
	if a.Classes == nil {
		return a.Drop
	}
	return a.Classes.Drops[class]
}

// sameButDrops tells whether an assignment changes nothing but what classes
// drop: clients acknowledge it as if it dropped nothing, so that what only some
// of them are told keeps no evidence waiting.
func sameButDrops(before, after *isobar.Assignment) bool {
	return before != nil && before.Classes != nil && after.Classes != nil &&
		before.OverprovisioningFactor == after.OverprovisioningFactor &&
		slices.EqualFunc(before.Priorities, after.Priorities, sameTier)
}
