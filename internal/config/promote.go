package config

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

var (
	scoreRange = strict.Range{AboveMin: true, Max: 1, LargeHint: "it is a fraction: write 0.95 for 95%"}
	// A window takes half a minute at least: the upper bound is a week of them.
	windowsRange = strict.Range{Min: 3, Max: 20_160, Unit: "windows"}
)

// promoteField reads when mode auto goes a step further, and when back.
func promoteField(into *isobar.Promotion) strict.Field {
	return strict.Field{Name: "promote", Read: func(v strict.Value) {
		p := *into
		v.Object([]strict.Field{
			floatField("score", &p.Score, scoreRange),
			floatField("rollback", &p.Rollback, scoreRange),
			{Name: "windows", Read: func(v strict.Value) {
				if n, ok := v.Int(windowsRange); ok {
					p.Windows = int(n)
				}
			}},
			{Name: "until", Read: func(v strict.Value) {
				s, ok := v.Enum(isobar.ModeFull.String(), isobar.ModeBounded.String())
				if m, err := isobar.ParseMode(s); ok && err == nil {
					p.Until = m
				}
			}},
		})
		if q := p.WithDefaults(); q.Rollback >= q.Score && (p.Score != 0 || p.Rollback != 0) {
			v.Errorf("make rollback smaller: scores between the two take no step, so that the mode does not oscillate",
				"rollback %v is not below score %v", q.Rollback, q.Score)
			return
		}
		*into = p
	}}
}
