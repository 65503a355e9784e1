package control

import "time"

// leave publishes the plan that clients keep while nobody is there: the one in
// force without its drops. What is saved has the drops, so that a successor
// goes on with them.
func (l *Loop) leave() {
	defer close(l.left)
	l.last = l.Current()
	if p := l.last.WithoutDrops(time.Now(), l.last.Version+1); p != nil {
		if p.Version > l.reserved { // or a successor would use it again, for other content
			_ = l.reserve(l.toSave(l.last), p.Version) // it is told, and there is no later plan to wait for
		}
		l.log.Info("clients drop nothing while this server is away", "version", p.VersionString())
		l.undropped.Store(true)
		l.show(p)
	}
}

// Left is closed when the loop has published its last plan.
func (l *Loop) Left() <-chan struct{} { return l.left }

// Undropped tells whether that plan differs from the one before.
func (l *Loop) Undropped() bool { return l.undropped.Load() }

// stop saves the last plan, drops and all, and what checkers found.
func (l *Loop) stop() {
	l.tell(Recorder.Stopped)
	saved, found := l.toSave(l.last), l.keeper.Save()
	l.saver.save(job{plan: &saved, health: &found, pages: l.pages})
	l.saver.close()
	l.metrics.unregister()
}
