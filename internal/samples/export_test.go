package samples

// Omitted is the number of services of the last sample that did not fit.
func (r *Ring) Omitted() int { return r.omitted }
