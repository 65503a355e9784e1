package operators

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// maxMatrixSeries bounds the series of the matrices of all listed services together.
const maxMatrixSeries = 20_000

var (
	matrixLabels  = []string{"service", "source", "locality"}
	descPublished = prometheus.NewDesc("isobar_matrix_published_share_ratio",
		"Published share: fraction of the requests of a source for a locality, for services in metrics.matrix.", matrixLabels, nil)
	descLanded = prometheus.NewDesc("isobar_matrix_observed_share_ratio",
		"Reported fraction of the requests of a source to a locality, for services in metrics.matrix.", matrixLabels, nil)
	descLeftOut = prometheus.NewDesc("isobar_matrix_left_out_series",
		"Missing series of services in metrics.matrix, beyond the limit of 20,000.", nil, nil)
	descCrossZone = prometheus.NewDesc("isobar_cross_zone_ratio",
		"Share of the requests of a service that is served in another zone than the client's, other regions included, by the published shares.",
		[]string{"service"}, nil)
	descCrossRegion = prometheus.NewDesc("isobar_cross_region_ratio",
		"Share of the requests of a service that is served in another region than the client's, by the published shares.", []string{"service"}, nil)
)

// Matrix shows where requests of the plan in force go: per service in sums,
// and between localities for the services that the configuration lists.
type Matrix struct {
	current func() *plan.Plan
	listed  func() []string
}

// NewMatrix returns the metrics of the current plan. listed names the services that the
// configuration lists.
func NewMatrix(current func() *plan.Plan, listed func() []string) *Matrix {
	return &Matrix{current: current, listed: listed}
}

// Describe implements [prometheus.Collector].
func (c *Matrix) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descPublished, descLanded, descLeftOut, descCrossZone, descCrossRegion} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Matrix) Collect(ch chan<- prometheus.Metric) {
	p := c.current()
	if p == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, svc := range p.Services {
		if svc.Result == nil {
			continue
		}
		if f := flowsOf(svc); f.sent > 0 {
			gauge(descCrossZone, f.zone/f.sent, svc.Spec.Name)
			gauge(descCrossRegion, f.region/f.sent, svc.Spec.Name)
		}
	}
	left, told := 0, 0
	for _, name := range c.listed() {
		svc, ok := p.Service(name)
		if !ok || svc.Result == nil {
			continue
		}
		for _, cell := range cellsOf(svc) {
			for _, x := range []struct {
				desc  *prometheus.Desc
				share float64
			}{{descPublished, cell.published}, {descLanded, cell.landed}} {
				switch {
				case x.share < 0: // nothing is known
				case told == maxMatrixSeries:
					left++
				default:
					told++
					gauge(x.desc, x.share, name, cell.source.String(), cell.locality.String())
				}
			}
		}
	}
	gauge(descLeftOut, float64(left))
}

// cell is a place in a matrix; a share below 0 is unknown.
type cell struct {
	source, locality  isobar.Locality
	published, landed float64
}

// cellsOf returns every pair of a source and a locality, also those without a share: a
// series that ends would go on for minutes in graphs.
func cellsOf(svc *plan.Service) []cell {
	landed := landedShares(svc)
	var out []cell
	for i := range svc.Result.Sources {
		r := &svc.Result.Sources[i]
		reports := landed[r.Source]
		for l := range svc.Result.Sites {
			c := cell{source: r.Source, locality: svc.Result.Sites[l].Group.Locality, landed: -1}
			if l < len(r.Shares) {
				c.published = r.Shares[l]
			}
			if reports != nil {
				c.landed = reports[c.locality]
			}
			out = append(out, c)
		}
	}
	return out
}

// landedShares returns by source where its requests landed; none for sources that
// reported nothing.
func landedShares(svc *plan.Service) map[isobar.Locality]map[isobar.Locality]float64 {
	out := map[isobar.Locality]map[isobar.Locality]float64{}
	if svc.Load == nil {
		return out
	}
	for i := range svc.Load.Sources {
		src := &svc.Load.Sources[i]
		total := 0.0
		for _, l := range src.Landed {
			total += l.Issued
		}
		if total <= 0 {
			continue
		}
		out[src.Source] = map[isobar.Locality]float64{}
		for _, l := range src.Landed {
			out[src.Source][l.Locality] += l.Issued / total
		}
	}
	return out
}
