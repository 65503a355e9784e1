package dataplane

// Predictions is what each kind of data plane does with the same cluster.
type Predictions struct {
	Envoy Prediction `json:"envoy"`
	GRPC  Prediction `json:"grpc"`
}

// PredictAll is [Predict] for every kind of data plane.
func PredictAll(c Cluster, o Options) Predictions {
	return Predictions{Envoy: Predict(c, Envoy, o), GRPC: Predict(c, GRPC, o)}
}
