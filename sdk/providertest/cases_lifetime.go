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

func (c *scene) pause(id string) {
	c.must(c.call("Pause", func(ctx context.Context) error { return c.Pause(ctx, id) }), "pause")
}

func (c *scene) resume(id string) {
	c.must(c.call("Resume", func(ctx context.Context) error { return c.Resume(ctx, id) }), "resume")
}

// "Pause freezes every process; memory and files stay." (Pauser)
func pauseKeepsFiles(c *scene) {
	id := c.instance()
	c.succeeded(c.run(id, c.samples.Write))
	c.pause(id)
	c.resume(id)
	c.prints(id, c.samples.Read, "kept")
}

// "Both methods are idempotent." (Pauser)
func pauseTwice(c *scene) {
	id := c.instance()
	c.resume(id)
	for range 2 {
		c.pause(id)
	}
	for range 2 {
		c.resume(id)
	}
	c.prints(id, c.samples.Hello, "hello\n")
}

// "and starts none in a paused one; a provider that sees one answers CodeConflict."
// (Pauser)
func pausedExecutesNothing(c *scene) {
	id := c.instance()
	c.pause(id)
	c.refused(c.tried(c.request(id, c.samples.Hello)).err, "Execute in a paused instance", sdk.CodeConflict)
	c.resume(id)
	c.prints(id, c.samples.Hello, "hello\n")
}

// "List returns every live instance." (Provider.List)
func pausedIsListed(c *scene) {
	id := c.instance()
	c.pause(id)
	_, ok := c.listed(c.session)[id]
	c.check(ok, "List lacks the paused instance %s", id)
}

// "Destroy ends an instance." (Provider.Destroy)
func pausedIsDestroyed(c *scene) {
	id := c.instance()
	c.pause(id)
	c.destroy(id)
	_, ok := c.listed(c.session)[id]
	c.check(!ok, "List has the instance %s that was destroyed", id)
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
func (c *scene) expiring(ttl time.Duration) sdk.Instance {
	c.someLanguage()
	req := c.createRequest(c.language)
	req.TTL = ttl
	return c.createWith(req)
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
	c.near(c.listed(c.session)[made.ID].ExpiresAt, time.Hour, "the expiry that List returned")
}

// "TTLSetter is implemented by providers that destroy an instance by themselves at
// the end of CreateRequest.TTL."
func ttlEnds(c *scene) { c.ends(c.expiring(c.suite.within(2 * time.Second)).ID) }

// ends waits for an instance that nobody destroys.
func (c *scene) ends(id string) {
	c.eventually("the instance ends by itself", func(context.Context) error {
		if _, there := c.listed(c.session)[id]; there {
			return errors.New("it is listed")
		}
		return nil
	})
	c.refused(c.tried(c.request(id, c.samples.Hello)).err, "Execute in an instance that has expired", sdk.CodeNotFound)
}

// "SetTTL moves that time to now plus ttl, and returns it." (TTLSetter)
func ttlMovesAhead(c *scene) {
	made := c.expiring(time.Hour)
	at := c.setTTL(made.ID, c.suite.within(2*time.Second))
	c.check(at.Before(made.ExpiresAt), "an expiry that was moved ahead is %v, after %v", at, made.ExpiresAt)
	c.ends(made.ID)
}

// The same.
func ttlMovesBack(c *scene) {
	short := c.suite.within(3 * time.Second)
	made := c.expiring(short)
	c.near(c.setTTL(made.ID, time.Hour), time.Hour, "the expiry that SetTTL returned")
	c.near(c.listed(c.session)[made.ID].ExpiresAt, time.Hour, "the expiry that List returned")
	// Until the old one is over, by an instance that has it.
	c.ends(c.expiring(short).ID)
	c.prints(made.ID, c.samples.Hello, "hello\n")
}

func (c *scene) setTTL(id string, ttl time.Duration) time.Time {
	var at time.Time
	err := c.call("SetTTL", func(ctx context.Context) (err error) {
		at, err = c.SetTTL(ctx, id, ttl)
		return err
	})
	c.must(err, "set the TTL")
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

func (c *scene) measure(id string) sdk.InstanceMetrics {
	var m sdk.InstanceMetrics
	err := c.call("InstanceMetrics", func(ctx context.Context) (err error) {
		m, err = c.InstanceMetrics(ctx, id)
		return err
	})
	c.must(err, "measure")
	return m
}

// "InstanceMetrics measures now." (Meter)
func meterMeasures(c *scene) {
	m := c.measure(c.instance())
	c.near(m.MeasuredAt, 0, "the time of the measurement")
	c.check(m.CPUTime > 0 || m.Memory > 0 || m.Disk > 0 || m.Processes > 0, "everything is unknown: %+v", m)
}

// "CPUTime since the instance was made" (InstanceMetrics)
func meterGrows(c *scene) {
	id := c.instance()
	before := c.measure(id)
	req := c.request(id, c.code(c.samples.Spin))
	req.Timeout = c.suite.within(time.Second)
	c.execute(req)
	after := c.measure(id)
	if before.CPUTime == 0 && after.CPUTime == 0 {
		c.skip("the CPU time is unknown")
	}
	c.check(after.CPUTime > before.CPUTime, "code that used a CPU for a second took the CPU time from %v to %v", before.CPUTime, after.CPUTime)
}

// "Bytes." (InstanceMetrics), in the same unit as their limits.
func meterLimits(c *scene) {
	id := c.instance()
	c.run(id, c.samples.Hello)
	m := c.measure(id)
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
