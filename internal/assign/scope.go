package assign

import "slices"

// scope is what the sites are good for to sources that must not use some.
type scope struct {
	forbidden []bool
	view      *view
}

// scopeOf gives the view of rows that must not use the forbidden sites: where
// nothing else is healthy, these fail open, and the others are as if they were
// not there.
func (w *work) scopeOf(forbidden []bool) *view {
	if len(forbidden) != len(w.sites) || !slices.Contains(forbidden, true) {
		return &w.view
	}
	for i := range w.scopes {
		if slices.Equal(w.scopes[i].forbidden, forbidden) {
			return w.scopes[i].view
		}
	}
	v := viewOf(w.sites, forbidden)
	for l := range v.groups {
		// Endpoints that are published as they are have one group for all.
		if v.groups[l] == w.sites[l].Group || v.groups[l].Equal(w.view.groups[l]) {
			v.groups[l] = w.view.groups[l]
		}
	}
	w.scopes = append(w.scopes, scope{forbidden: forbidden, view: &v})
	return &v
}

// isForbidden tells whether the row must never send to site i.
func (r *row) isForbidden(i int) bool {
	return i < len(r.src.Forbidden) && r.src.Forbidden[i]
}

// effectiveReserve ignores reserves where nothing else is fit.
func (w *work) effectiveReserve(r *row) []bool {
	if len(r.src.Reserve) != len(w.sites) || !r.scope.regular {
		return nil
	}
	for l, reserve := range r.src.Reserve {
		if !reserve && w.usable(r, l) {
			return r.src.Reserve
		}
	}
	return nil
}
