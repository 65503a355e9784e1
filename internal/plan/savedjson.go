package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/appendjson"
	"github.com/isobar-xds/isobar/internal/capacity"
)

// The encoders of what is written at every tick, for the disk and for other replicas. They write
// the bytes that [json.Marshal] would; TestAppendedJSON compares them. Parts that few services have
// are left to it.

func appendLocality(b *appendjson.Buffer, l *isobar.Locality) { b.String(l.String()) }

func appendSavedService(b *appendjson.Buffer, s *SavedService) {
	b.Open('{')
	b.Key("name")
	b.String(s.Name)
	b.OptionalFloat("drop", s.Drop)
	b.OptionalFloats("classes", s.Classes)
	b.Key("sites")
	appendjson.Array(b, s.Sites, appendLocality)
	b.OptionalFloats("prices", s.Prices)
	b.Key("limits")
	appendjson.Array(b, s.Limits, appendSavedSite)
	b.Key("sources")
	appendjson.Array(b, s.Sources, appendSavedSource)
	if len(s.Learned) > 0 {
		b.Key("learned")
		b.Any(s.Learned)
	}
	if s.Rollout != nil {
		b.Key("trust")
		b.Any(s.Rollout)
	}
	b.OptionalTime("heard", s.Heard)
	if len(s.Dimensions) > 0 {
		b.Key("dimensions")
		b.Any(s.Dimensions)
	}
	appendjson.OptionalArray(b, "observed", s.Observed, appendObserved)
	if s.RequestLimit != (RequestLimit{}) {
		b.Key("request_limit")
		b.Any(s.RequestLimit)
	}
	b.Close('}')
}

func appendSavedSite(b *appendjson.Buffer, s *SavedSite) {
	b.Open('{')
	b.Key("capacity")
	b.Float(s.Capacity)
	b.Key("scale")
	b.Float(s.Scale)
	b.Close('}')
}

func appendSavedSource(b *appendjson.Buffer, s *SavedSource) {
	b.Open('{')
	b.Key("source")
	appendLocality(b, &s.Source)
	b.Key("demand")
	b.Float(s.Demand)
	b.OptionalFloat("unproven", s.Unproven)
	b.OptionalFloat("swing", s.Variability)
	b.Key("shares")
	b.Floats(s.Shares)
	b.OptionalInts("below", s.Below)
	b.OptionalFloats("mix", s.Mix)
	appendjson.OptionalArray(b, "tiers", s.Tiers, appendSavedTier)
	b.Close('}')
}

func appendSavedTier(b *appendjson.Buffer, tier *[]SavedWeight) {
	appendjson.Array(b, *tier, func(b *appendjson.Buffer, w *SavedWeight) {
		b.Open('{')
		b.Key("site")
		b.Int(int64(w.Site))
		b.Key("weight")
		b.Int(int64(w.Weight))
		b.Close('}')
	})
}

func appendObserved(b *appendjson.Buffer, o *ObservedCapacity) {
	b.Open('{')
	b.Key("locality")
	appendLocality(b, &o.Locality)
	b.Key("at")
	b.Time(o.At)
	b.Key("since")
	b.Time(o.Since)
	b.OptionalFloat("declared", o.Declared)
	b.OptionalFloat("usual", o.Usual)
	b.Key("estimate")
	appendEstimate(b, &o.Estimate)
	b.OptionalFloat("losing", o.Losing)
	b.OptionalFloat("in_use", o.InUse)
	for _, f := range [...]struct {
		name  string
		value float64
	}{{"rate", o.Rate}, {"in_progress", o.InProgress}, {"expected", o.Expected}, {"failing", o.Failing}} {
		b.Key(f.name)
		b.Float(f.value)
	}
	b.Key("evidence")
	b.Open('{')
	b.Key("low")
	b.Int(int64(o.Evidence.Low))
	b.Key("evidence")
	b.Floats(o.Evidence.Evidence)
	b.Key("service")
	b.Float(o.Evidence.Service)
	b.Close('}')
	b.Close('}')
}

func appendEstimate(b *appendjson.Buffer, e *capacity.Estimate) {
	b.Open('{')
	b.Key("low")
	b.Float(e.Low)
	b.Key("high")
	b.Float(e.High)
	b.Key("known")
	b.Bool(e.Known)
	for _, f := range [...]struct {
		name  string
		value float64
	}{
		{"median", e.Median}, {"safe", e.Safe}, {"plan", e.Plan}, {"service", e.Service}, {"quick", e.Quick},
		{"errors", e.Errors}, {"another", e.Another}, {"shedding", e.Shedding},
	} {
		b.Key(f.name)
		b.Float(f.value)
	}
	b.Close('}')
}
