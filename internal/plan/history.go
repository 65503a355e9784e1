package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/isobar-xds/isobar"
)

// Bounds of a History.
const (
	// MaxChanges is how many changes are kept at least, where they fit.
	MaxChanges = 1000
	// pageChanges is how many changes are written together.
	pageChanges = 50
	// pageShares bounds the shares on a page; a larger change has one of its own.
	pageShares = 100_000
	// MaxPages bounds the pages: one more than what makes MaxChanges, because
	// the newest fills up while the oldest is still there.
	MaxPages = MaxChanges/pageChanges + 1
	// maxShares bounds the shares on all pages, and so the memory: some 30 MB.
	maxShares = 2_000_000
)

// Page is a part of a history, to be written on its own. Immutable.
type Page struct {
	Number  uint64   `json:"number"` // counts up
	Changes []Change `json:"changes"`

	shares int
}

// History is the last changes of the plan, oldest first. It belongs to one
// goroutine; pages and changes that it gave out don't change.
type History struct {
	pages []Page
}

// NewHistory takes up what an earlier process wrote, as far as it leads up to
// what that process saved: before a page that is damaged or missing nothing is
// certain, and a history that ends before the last change of the saved plan
// tells nothing at all.
func NewHistory(pages []Page, saved *Saved) *History {
	pages = slices.Clone(pages)
	slices.SortFunc(pages, func(a, b Page) int { return cmp.Compare(a.Number, b.Number) })
	h := &History{pages: unbroken(pages)}
	for i := range h.pages {
		p := &h.pages[i]
		// What was decided after the plan that was saved is gone with it.
		p.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return c.Version > saved.Version })
		p.shares = sharesIn(p.Changes)
	}
	if len(pages) > 0 && (len(h.pages) == 0 || h.Last() < saved.LastChange) {
		// The numbers go on with a gap, so that nobody takes the old for new.
		h.pages = []Page{{Number: pages[len(pages)-1].Number + MaxPages}}
	}
	return h
}

// unbroken returns the newest pages that follow each other without a fault.
func unbroken(pages []Page) []Page {
	next, number := uint64(math.MaxUint64), uint64(0)
	for i := range slices.Backward(pages) {
		if i < len(pages)-1 && pages[i].Number+1 != number {
			return pages[i+1:]
		}
		number = pages[i].Number
		for j := len(pages[i].Changes) - 1; j >= 0; j-- {
			c := &pages[i].Changes[j]
			if !c.valid() || c.Version >= next {
				return pages[i+1:]
			}
			next = c.Version
		}
	}
	return pages
}

// Add appends a change and returns the page that has to be written.
func (h *History) Add(c Change) Page {
	n := sharesIn([]Change{c})
	if len(h.pages) == 0 {
		h.pages = append(h.pages, Page{})
	}
	p := &h.pages[len(h.pages)-1]
	if len(p.Changes) >= pageChanges || (len(p.Changes) > 0 && p.shares+n > pageShares) {
		h.pages = append(h.pages, Page{Number: p.Number + 1})
		p = &h.pages[len(h.pages)-1]
	}
	p.Changes = append(p.Changes, c)
	p.shares += n
	for len(h.pages) > 1 && (len(h.pages) > MaxPages || h.shares() > maxShares) {
		h.pages = slices.Delete(h.pages, 0, 1)
	}
	last := h.pages[len(h.pages)-1]
	last.Changes = slices.Clip(last.Changes)
	return last
}

func (h *History) shares() int {
	n := 0
	for i := range h.pages {
		n += h.pages[i].shares
	}
	return n
}

func sharesIn(changes []Change) int {
	n := 0
	for i := range changes {
		for _, service := range changes[i].Services {
			for _, s := range service.Sources {
				n += 8 + len(s.Before) + len(s.After)
			}
		}
	}
	return n
}

// Last is the version of the last change; 0 when there is none.
func (h *History) Last() uint64 {
	for _, p := range slices.Backward(h.pages) {
		if n := len(p.Changes); n > 0 {
			return p.Changes[n-1].Version
		}
	}
	return 0
}

// Changes lists what changed a service, or every change for an empty name,
// newest first; at most MaxChanges.
func (h *History) Changes(service string) []Change {
	out := []Change{}
	for _, p := range slices.Backward(h.pages) {
		for _, c := range slices.Backward(p.Changes) {
			ok := true
			if service != "" {
				c, ok = c.only(service)
			}
			if ok && len(out) < MaxChanges {
				out = append(out, c)
			}
		}
	}
	return out
}

// reaches reports whether the shares at a version can be told. Each change tells
// what was before it since the version that it followed; what a killed process
// published after it last saved, nobody knows.
func (h *History) reaches(version, current uint64) error {
	oldest := uint64(0)
	for i := range h.pages {
		for j := range h.pages[i].Changes {
			c := &h.pages[i].Changes[j]
			if oldest == 0 {
				oldest = c.Version
			}
			if version > c.Previous && version < c.Version && c.Trigger == TriggerRestart {
				return fmt.Errorf("version %d: %w: no plan of that version is known; before version %d the server restarted, and %d was the last that it had saved",
					version, isobar.ErrNotFound, c.Version, c.Previous)
			}
		}
	}
	switch {
	case version > current:
		return fmt.Errorf("version %d: %w: the plan in force is %d", version, isobar.ErrNotFound, current)
	case oldest == 0 || version < oldest:
		return fmt.Errorf("version %d: %w: what is kept begins with version %d", version, isobar.ErrNotFound, max(oldest, 1))
	}
	return nil
}
