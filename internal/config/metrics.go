package config

import "github.com/isobar-xds/isobar/internal/config/strict"

// maxMatrixServices bounds the services with a matrix in the metrics.
const maxMatrixServices = 1000

// Values of metrics.localities: which localities of a service have metrics.
const (
	allLocalities   = "all"
	exceptionsAmong = "exceptions"
)

// readMetrics reads which services have a matrix in the metrics, and which localities have any.
func readMetrics(v strict.Value, c *Live) {
	v.Object([]strict.Field{
		{Name: "matrix", Read: func(v strict.Value) { c.MetricsMatrix = readMatrix(v) }},
		{Name: "localities", Read: func(v strict.Value) {
			s, _ := v.Enum(allLocalities, exceptionsAmong)
			c.MetricsExceptions = s == exceptionsAmong
		}},
	})
}

func readMatrix(v strict.Value) (matrix []string) {
	items, ok := v.List()
	if !ok {
		return nil
	}
	if len(items) > maxMatrixServices {
		v.Errorf("list those that you look at in graphs", "%d services, want at most %d", len(items), maxMatrixServices)
		return nil
	}
	seen := map[string]bool{}
	for _, item := range items {
		name, ok := item.Text()
		switch {
		case !ok:
		case seen[name]:
			item.Errorf("list each service once", "%q is listed twice", name)
		default:
			seen[name] = true
			matrix = append(matrix, name)
		}
	}
	return matrix
}
