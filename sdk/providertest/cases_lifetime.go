package providertest

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func pauseCases() []Case {
	const group = "pause"
	return needing([]Case{
		{Group: group, Name: "files stay over a pause", run: pauseKeepsFiles},
		{Group: group, Name: "to pause and to resume twice is a success", run: pauseTwice},
		{Group: group, Name: "a paused instance executes nothing", run: pausedExecutesNothing},
		{Group: group, Name: "a paused instance is listed", run: pausedIsListed},
		{Group: group, Name: "a paused instance can be destroyed", run: pausedIsDestroyed},
		{Group: group, Name: "a command stands still and goes on", run: pauseStopsCommands, needs: []sdk.Capability{sdk.CapabilityCommands}},
		{Group: group, Name: "a command is read, written to and signalled after a pause", run: commandsOutlivePause, needs: []sdk.Capability{sdk.CapabilityCommands}},
		{Group: group, Name: "a context keeps its state", run: contextOutlivesPause, needs: []sdk.Capability{sdk.CapabilityContexts}},
		{Group: group, Name: "a watch goes on, or says that it has ended", run: watchOutlivesPause, needs: []sdk.Capability{sdk.CapabilityFileWatch, sdk.CapabilityFiles}},
		{Group: group, Name: "unknown instances are not found", run: pauseUnknown},
	}, sdk.CapabilityPause)
}

func (in instance) pause() {
	in.must(in.call("Pause", func(ctx context.Context) error { return in.Pause(ctx, in.ID) }), "pause")
}

func (in instance) resume() {
	in.must(in.call("Resume", func(ctx context.Context) error { return in.Resume(ctx, in.ID) }), "resume")
}

// "Pause freezes every process; memory and files stay." (Pauser)
func pauseKeepsFiles(c *scene) {
	in := c.instance()
	in.run(c.samples.Write).succeeded()
	in.pause()
	in.resume()
	in.prints(c.samples.Read, "kept")
}

// "Both methods are idempotent." (Pauser)
func pauseTwice(c *scene) {
	in := c.instance()
	in.resume()
	for range 2 {
		in.pause()
	}
	for range 2 {
		in.resume()
	}
	in.prints(c.samples.Hello, "hello\n")
}

// "and starts none in a paused one; a provider that sees one answers CodeConflict."
// (Pauser)
func pausedExecutesNothing(c *scene) {
	in := c.instance()
	in.pause()
	c.refused(c.tried(in.request(c.samples.Hello)).err, "Execute in a paused instance", sdk.CodeConflict)
	in.resume()
	in.prints(c.samples.Hello, "hello\n")
}

// "List returns every live instance." (Provider.List)
func pausedIsListed(c *scene) {
	in := c.instance()
	in.pause()
	_, ok := c.listed()[in.ID]
	c.check(ok, "List lacks the paused instance %s", in.ID)
}

// "Destroy ends an instance." (Provider.Destroy)
func pausedIsDestroyed(c *scene) {
	in := c.instance()
	in.pause()
	c.destroy(in.ID)
	_, ok := c.listed()[in.ID]
	c.check(!ok, "List has the instance %s that was destroyed", in.ID)
}

// "return CodeNotFound for an unknown instance" (Pauser)
func pauseUnknown(c *scene) {
	c.refused(c.Pause(c.ctx, "unknown"+randomWord()), "Pause of an unknown instance", sdk.CodeNotFound)
	c.refused(c.Resume(c.ctx, "unknown"+randomWord()), "Resume of an unknown instance", sdk.CodeNotFound)
}

func lifetimeCases() []Case {
	const group = "set_ttl"
	return needing([]Case{
		{Group: group, Name: "an instance says when it expires", run: ttlIsTold},
		{Group: group, Name: "an instance ends by itself", run: ttlEnds},
		{Group: group, Name: "its end is moved ahead", run: ttlMovesAhead},
		{Group: group, Name: "its end is moved back", run: ttlMovesBack},
		{Group: group, Name: "unknown instances are not found", run: ttlUnknown},
	}, sdk.CapabilitySetTTL)
}

// expiring makes an instance with a TTL.
func (c *scene) expiring(ttl time.Duration) instance {
	c.someLanguage()
	req := c.createRequest(c.language)
	req.TTL = ttl
	return c.create(req)
}

// near checks a time of the provider's clock, roughly.
func (c *scene) near(got time.Time, ttl time.Duration, what string) {
	slack := c.suite.within(time.Minute)
	c.check(!got.IsZero(), "%s is missing", what)
	if off := time.Until(got) - ttl; off < -slack || off > slack {
		c.fail("%s is in %v; it must be in %v", what, time.Until(got).Round(time.Second), ttl)
	}
}

// "ExpiresAt is when the provider will destroy it." (Instance)
func ttlIsTold(c *scene) {
	made := c.expiring(time.Hour)
	c.near(made.ExpiresAt, time.Hour, "the expiry that Create returned")
	c.near(c.listed()[made.ID].ExpiresAt, time.Hour, "the expiry that List returned")
}

// "TTLSetter is implemented by providers that destroy an instance by themselves at
// the end of CreateRequest.TTL."
func ttlEnds(c *scene) { c.expiring(c.suite.within(2 * time.Second)).ends() }

// ends waits for an instance that nobody destroys.
func (in instance) ends() {
	in.eventually("the instance ends by itself", func(context.Context) error {
		if _, there := in.listed()[in.ID]; there {
			return errors.New("it is listed")
		}
		return nil
	})
	in.refused(in.tried(in.request(in.samples.Hello)).err, "Execute in an instance that has expired", sdk.CodeNotFound)
}

// "SetTTL moves that time to now plus ttl, and returns it." (TTLSetter)
func ttlMovesAhead(c *scene) {
	made := c.expiring(time.Hour)
	at := made.setTTL(c.suite.within(2 * time.Second))
	c.check(at.Before(made.ExpiresAt), "an expiry that was moved ahead is %v, after %v", at, made.ExpiresAt)
	made.ends()
}

// The same.
func ttlMovesBack(c *scene) {
	short := c.suite.within(3 * time.Second)
	made := c.expiring(short)
	c.near(made.setTTL(time.Hour), time.Hour, "the expiry that SetTTL returned")
	c.near(c.listed()[made.ID].ExpiresAt, time.Hour, "the expiry that List returned")
	// Until the old one is over, by an instance that has it.
	c.expiring(short).ends()
	made.prints(c.samples.Hello, "hello\n")
}

func (in instance) setTTL(ttl time.Duration) time.Time {
	var at time.Time
	err := in.call("SetTTL", func(ctx context.Context) (err error) {
		at, err = in.SetTTL(ctx, in.ID, ttl)
		return err
	})
	in.must(err, "set the TTL")
	return at
}

// The same as of all calls for an instance.
func ttlUnknown(c *scene) {
	_, err := c.SetTTL(c.ctx, "unknown"+randomWord(), time.Minute)
	c.refused(err, "SetTTL of an unknown instance", sdk.CodeNotFound)
}

func meterCases() []Case {
	const group = "metrics"
	return needing([]Case{
		{Group: group, Name: "what an instance uses is measured now", run: meterMeasures},
		{Group: group, Name: "used CPU time grows with use", run: meterGrows},
		{Group: group, Name: "nothing is above its limit by far", run: meterLimits},
		{Group: group, Name: "unknown instances are not found", run: meterUnknown},
	}, sdk.CapabilityMetrics)
}

func (in instance) measure() sdk.InstanceMetrics {
	var m sdk.InstanceMetrics
	err := in.call("InstanceMetrics", func(ctx context.Context) (err error) {
		m, err = in.InstanceMetrics(ctx, in.ID)
		return err
	})
	in.must(err, "measure")
	return m
}

// "InstanceMetrics measures now." (Meter)
func meterMeasures(c *scene) {
	m := c.instance().measure()
	c.near(m.MeasuredAt, 0, "the time of the measurement")
	c.check(m.CPUTime > 0 || m.Memory > 0 || m.Disk > 0 || m.Processes > 0, "everything is unknown: %+v", m)
}

// "CPUTime since the instance was made" (InstanceMetrics)
func meterGrows(c *scene) {
	in := c.instance()
	before := in.measure()
	req := in.request(c.code(c.samples.Spin))
	req.Timeout = c.suite.within(time.Second)
	c.execute(req)
	after := in.measure()
	if before.CPUTime == 0 && after.CPUTime == 0 {
		c.skip("the CPU time is unknown")
	}
	c.check(after.CPUTime > before.CPUTime, "code that used a CPU for a second took the CPU time from %v to %v", before.CPUTime, after.CPUTime)
}

// "Bytes." (InstanceMetrics), in the same unit as their limits.
func meterLimits(c *scene) {
	in := c.instance()
	in.run(c.samples.Hello)
	m := in.measure()
	for what, pair := range map[string][2]int64{"memory": {m.Memory, m.MemoryLimit}, "disk": {m.Disk, m.DiskLimit}, "processes": {m.Processes, m.ProcessLimit}} {
		used, limit := pair[0], pair[1]
		c.check(limit == 0 || used <= 2*limit, "%s: %d are used of %d", what, used, limit)
	}
}

// The same as of all calls for an instance.
func meterUnknown(c *scene) {
	_, err := c.InstanceMetrics(c.ctx, "unknown"+randomWord())
	c.refused(err, "InstanceMetrics of an unknown instance", sdk.CodeNotFound)
}
