package config

import "github.com/isobar-xds/isobar/internal/config/strict"

// maxMatrixServices bounds the services with a matrix in the metrics.
const maxMatrixServices = 1000

// readMetrics reads which services have a matrix in the metrics.
func readMetrics(v strict.Value) (matrix []string) {
	v.Object([]strict.Field{{Name: "matrix", Read: func(v strict.Value) {
		items, ok := v.List()
		if !ok {
			return
		}
		if len(items) > maxMatrixServices {
			v.Errorf("list those that you look at in graphs", "%d services, want at most %d", len(items), maxMatrixServices)
			return
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
	}}})
	return matrix
}
