package main

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/clipperhouse/displaywidth"

	"github.com/isobar-xds/isobar/internal/admin"
)

// topPage is what the live view shows.
type topPage int

const (
	pageServices topPage = iota // a line for each service
	pageService                 // one service: its localities and where its load comes from
	pageHelp                    // keys and columns
)

// topDetail is what the server said of one service.
type topDetail struct {
	service string
	view    admin.PlanView
	err     error
}

const topHelp = `Keys
  up, down, j, k      choose a service
  page up, page down  one screen up or down
  g, G                first, last
  Enter               the chosen service: localities and sources
  u d s x n           sort by utilization, demand, shift, drops, name
  ?                   this help; any key returns
  Esc, Backspace      back to the list
  q                   quit

Columns
  REQ/S    requests/s that clients want to send
  FULLEST  the locality with the highest utilization by the plan in force
  USED     its utilization
  SHIFT    part of the demand that does not go to the nearest locality
  MOVING   part of the demand whose shares still differ from the target
  DROP     part of the requests that Isobar makes clients drop
  HEALTHY  endpoints that take traffic, and all endpoints
  COVER    part of the known demand whose clients report
  GAP      largest possible distance from the optimum
  STATE    paused, held, overflow (by how much Isobar raises the ceilings), nothing healthy`

// openService shows the chosen service, and asks the server for it.
func (m *topView) openService() (tea.Model, tea.Cmd) {
	services := m.services()
	if len(services) == 0 {
		return m, nil
	}
	m.page, m.top, m.detail = pageService, 0, nil
	m.service = services[m.cursor()].Name
	return m, m.askService()
}

// askService asks for the service that is shown; nil where none is.
func (m *topView) askService() tea.Cmd {
	if m.page != pageService || m.askOne == nil {
		return nil
	}
	name := m.service
	return func() tea.Msg { return m.askOne(name) }
}

// pageKey handles a key on the pages of one service and of help.
func (m *topView) pageKey(k string) (tea.Model, tea.Cmd) {
	most := max(0, len(m.pageLines())-m.height+1)
	by := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -m.height + 2, "pgdown": m.height - 2, "space": m.height - 2, "home": -most, "g": -most, "end": most, "G": most,
	}[k]
	switch {
	case k == "q" || k == "ctrl+c":
		return m, tea.Quit
	case by != 0 && m.page == pageService:
		m.top = max(0, min(m.top+by, most))
	case k == "?" && m.page == pageService:
		m.page, m.top = pageHelp, 0
	case m.page == pageHelp || slices.Contains([]string{"esc", "backspace", "enter", "left", "h"}, k):
		m.page, m.top, m.detail = pageServices, 0, nil
		m.follow()
	}
	return m, nil
}

// pageLines are the lines of the page of one service, or of help.
func (m *topView) pageLines() []string {
	if m.page == pageHelp {
		return strings.Split(topHelp, "\n")
	}
	var lines []string
	if m.err != nil {
		lines = append(lines, m.noAnswer())
	}
	switch {
	case m.detail == nil:
		return append(lines, "asking the server for "+printable(m.service)+" ...")
	case m.detail.err != nil:
		return append(lines, "! "+printable(m.detail.err.Error()))
	case len(m.detail.view.Services) != 1:
		return append(lines, "! the server does not report "+printable(m.service))
	}
	return append(lines, serviceLines(&m.detail.view, m.width)...)
}

// serviceLines describe a service: its settings, localities and sources.
func serviceLines(p *admin.PlanView, width int) []string {
	s := &p.Services[0]
	policy := "policy " + s.Policy.String()
	if s.Hold != "" {
		policy += ", held: " + printable(s.Hold)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  plan %s  mode %s, %s\n", orDash(s.Name), printable(p.Version), s.Mode, policy)
	demand := 0.0
	for i := range s.Sources {
		demand += s.Sources[i].Demand
	}
	fmt.Fprintf(&b, "%s requests/s, coverage %s, at most %s from the optimum", rate(demand), coverage(demand, s.Coverage, 1), percent(s.PlanGap))
	if s.Drop > 0 {
		fmt.Fprintf(&b, ", clients drop %s", percent(s.Drop))
	}
	if s.CeilingScale > raisedLeast {
		fmt.Fprintf(&b, ", Isobar raises the ceilings by %s", percent(s.CeilingScale-1))
	}
	b.WriteString("\n\n")
	columns, _ := fitColumns(siteColumns(s.Localities), width)
	writeColumns(&b, columns)
	b.WriteByte('\n')
	sources := slices.Clone(s.Sources)
	byLargest(sources)
	columns, _ = fitColumns(sourceColumns(sources), width)
	writeColumns(&b, columns)
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// siteColumns are those of the table of localities.
func siteColumns(sites []admin.SiteView) []column {
	columns := []column{
		{head: "LOCALITY"}, {head: "HEALTHY", spare: 2}, {head: "CAP", spare: 3}, {head: "REQ/S"}, {head: "USED"}, {head: "CEIL", spare: 1}, {head: "STATE"},
	}
	for i := range sites {
		s := &sites[i]
		used, state := "-", ""
		if s.Capacity > 0 {
			used = percent(s.Utilization)
		}
		switch {
		case s.Healthy == 0 && s.Endpoints > 0:
			state = "nothing healthy"
		case s.Unreachable:
			state = "unreachable"
		}
		for c, cell := range []string{
			s.Locality.String(), fmt.Sprintf("%d/%d", s.Healthy, s.Endpoints), rate(s.Capacity), rate(s.Load + s.UnmanagedLoad), used, percent(s.Ceiling), state,
		} {
			columns[c].cells = append(columns[c].cells, cell)
		}
	}
	return columns
}

// pageText is the page of one service, or of help, as high as the terminal.
func (m *topView) pageText() string {
	var b strings.Builder
	lines := m.pageLines()
	height := max(1, m.height-1)
	m.top = max(0, min(m.top, len(lines)-height))
	shown := lines[m.top:min(len(lines), m.top+height)]
	for _, text := range shown {
		text = cut(text, m.width)
		switch {
		case strings.HasPrefix(text, "!"):
			text = styleAlarm + text + styleNone
		case isHead(text):
			text = styleColumn + text + strings.Repeat(" ", max(0, m.width-displaywidth.String(text))) + styleNone
		}
		b.WriteString(text + "\n")
	}
	b.WriteString(strings.Repeat("\n", height-len(shown)))
	keys := "any key: back   q quits"
	if m.page == pageService {
		keys = "Esc: all services   scroll: arrows   ? help   q quits"
	}
	b.WriteString(styleFaint + cut(keys, m.width) + styleNone)
	return b.String()
}

// isHead reports whether a line has the heads of a table.
func isHead(line string) bool {
	return strings.HasPrefix(line, "LOCALITY  ") || strings.HasPrefix(line, "FROM  ")
}
