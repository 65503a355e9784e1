package config

import (
	"fmt"
	"log/slog"
	"mime"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Parser reads service objects of the admin API. Safe for use by several
// goroutines at once.
type Parser struct {
	// Defaults gives the values of fields that an object leaves out; nil =
	// Isobar's own. They become part of the object when it is written.
	Defaults func() Defaults
	// Log gets the warnings; nil = they are not told.
	Log *slog.Logger
}

// ParseService reads one service, as JSON or YAML whatever contentType says
// of the two. The name may be left out of the body; if it stands there it must
// be the one given.
func (p Parser) ParseService(body []byte, contentType, name string) (isobar.Service, error) {
	if err := checkMedia(contentType); err != nil {
		return isobar.Service{}, err
	}
	s, warnings, err := DecodeService(name, body, p.defaults())
	p.warn(warnings)
	return s, err
}

// ParseServices reads a list of services, or an object with a list under
// services.
func (p Parser) ParseServices(body []byte, contentType string) ([]isobar.Service, error) {
	if err := checkMedia(contentType); err != nil {
		return nil, err
	}
	s, warnings, err := DecodeServices(body, p.defaults())
	p.warn(warnings)
	return s, err
}

func (p Parser) defaults() Defaults {
	if p.Defaults == nil {
		return Defaults{}
	}
	return p.Defaults()
}

func (p Parser) warn(warnings []Problem) {
	if p.Log == nil {
		return
	}
	for _, w := range warnings {
		p.Log.Warn("service object", "warning", w.String())
	}
}

// checkMedia refuses what is plainly neither JSON nor YAML. JSON is YAML, so
// which of the two it is makes no difference; curl sends a form by default.
func checkMedia(contentType string) error {
	if contentType == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && (strings.HasSuffix(media, "json") || strings.HasSuffix(media, "yaml") || strings.HasPrefix(media, "text/")):
		return nil
	case err == nil && (media == "application/x-www-form-urlencoded" || media == "application/octet-stream"):
		return nil
	default:
		return fmt.Errorf("%w: content type %.100q: send application/json or application/yaml", isobar.ErrInvalid, contentType)
	}
}
