package server

import (
	"errors"
	"fmt"

	"github.com/isobar-xds/isobar/internal/plan"
)

// pageKey is where a page of the history is kept: pages take turns in a ring.
func pageKey(number uint64) string { return fmt.Sprintf("history-%02d", number%plan.MaxPages) }

// LoadHistory implements control.State. With an error, it gives the pages that
// can be read.
func (s *loopState) LoadHistory() ([]plan.Page, error) {
	var out []plan.Page
	var wrong error
	for n := range uint64(plan.MaxPages) {
		page, err := loadJSON[plan.Page](s.store, pageKey(n))
		switch {
		case err != nil:
			wrong = errors.Join(wrong, err)
		case page != nil && page.Number%plan.MaxPages == n:
			out = append(out, *page)
		}
	}
	return out, wrong
}

// SavePage implements control.State.
func (s *loopState) SavePage(page plan.Page) error { return s.save(pageKey(page.Number), page) }
