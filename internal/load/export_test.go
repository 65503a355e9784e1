package load

// Saved lists the demand per source that is worth remembering, sorted by
// service and source; NewTable takes it after a restart.
func (s *Snapshot) Saved() []Saved {
	if s == nil {
		return nil
	}
	var out []Saved
	for i := range s.Services {
		svc := &s.Services[i]
		for j := range svc.Sources {
			if src := &svc.Sources[j]; src.Demand >= negligible {
				out = append(out, Saved{Service: svc.Name, Source: src.Source, Rate: src.Demand, Unproven: src.Claimed, Variability: src.Variability})
			}
		}
	}
	return out
}

// Viewed is for how many localities of a source the table has memory to observe them, and how many count.
func (t *Table) Viewed() (allocated, most int) { return cap(t.observer.views.list), maxSites }
