package assign

// retreat is for wants that do not fit together, as when bars leave no way to
// keep the limits: then those that lift a site too high go only so far that it
// is lifted no further, and the others their way. Where that makes others lift
// the sites that they stay on, it takes several rounds.
func (w *work) retreat(load, caps []float64) {
	for range 4*len(w.sites) + 8 {
		w.loadsInto(load, nextOf)
		at := overCap(load, caps)
		if at < 0 {
			return
		}
		total := 0.0
		for i := range w.rows {
			total += w.rows[i].lifts(at)
		}
		keep := max(0, 1-(load[at]-caps[at])/max(tiny, total))
		for i := range w.rows {
			if r := &w.rows[i]; r.lifts(at) > 0 {
				r.goBack(keep)
			}
		}
	}
	for i := range w.rows {
		w.rows[i].goBack(0) // what is there already is within the caps
	}
}

// lifts is what the row's step adds to the load of a site.
func (r *row) lifts(site int) float64 { return max(0, r.rate*(r.next[site]-r.from[site])) }

// goBack keeps a part of the row's step.
func (r *row) goBack(keep float64) {
	for l := range r.next {
		r.next[l] = r.from[l] + keep*(r.next[l]-r.from[l])
	}
}
