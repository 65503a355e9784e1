package control

import (
	"maps"
	"slices"
)

// note remembers what can't be saved now, and gives whether that is other than
// before. Writes of different things may end at the same time.
func (s *saver) note(what string, err error) (news bool) {
	s.noting.Lock()
	defer s.noting.Unlock()
	before, failing := s.failing[what]
	if err == nil {
		delete(s.failing, what)
		return failing
	}
	if s.failing == nil {
		s.failing = map[string]string{}
	}
	s.failing[what] = err.Error()
	return err.Error() != before
}

// unsaved lists what can't be saved now, and why.
func (s *saver) unsaved() []string {
	s.noting.Lock()
	defer s.noting.Unlock()
	var out []string
	for _, what := range slices.Sorted(maps.Keys(s.failing)) {
		out = append(out, what+": "+s.failing[what])
	}
	return out
}

// Unsaved lists what can't be written to the state now, and why; serving goes
// on from memory. Empty when all is saved.
func (l *Loop) Unsaved() []string {
	if s := l.writing.Load(); s != nil {
		return s.unsaved()
	}
	return nil
}
