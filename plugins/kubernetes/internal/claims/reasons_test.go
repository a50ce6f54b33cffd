package claims

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// These tests are inside the package: no controller can be had to say some of this.

func TestWhatIsWaitedForInVain(t *testing.T) {
	for name, test := range map[string]struct {
		reason, message string
		want            sdk.Code
	}{
		"it is being made":           {"DependenciesNotReady", "Pod does not exist", ""},
		"somebody else was faster":   {"AdoptionConflict", "the next pass retries", ""},
		"an error that may pass":     {"ReconcilerError", "Error seen: etcdserver: request timed out", ""},
		"variables are not allowed":  {"EnvVarsInjectionRejected", "not allowed by the template policy", sdk.CodeCreateFailed},
		"there is no template":       {"TemplateNotFound", `SandboxTemplate "x" not found`, sdk.CodeCreateFailed},
		"there is no pool":           {"WarmPoolNotFound", `SandboxWarmPool "x" not found`, sdk.CodeCreateFailed},
		"its time is over":           {"ClaimExpired", "Claim expired", sdk.CodeCreateFailed},
		"a quota is exhausted":       {"ReconcilerError", `Error seen: pods "a" is forbidden: exceeded quota: none`, sdk.CodeQuotaExceeded},
		"the namespace forbids pods": {"ReconcilerError", `Error seen: pods "a" is forbidden: violates PodSecurity "restricted:latest"`, sdk.CodeCreateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &extensionsv1beta1.SandboxClaim{}
			claim.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: test.reason, Message: test.message}}
			err := hopeless(claim)
			if test.want == "" {
				assert.NilError(t, err)
				assert.Check(t, is.Contains(waiting(claim), test.message))
				return
			}
			assert.Check(t, is.Equal(sdk.CodeOf(err), test.want))
			assert.Check(t, is.ErrorContains(err, test.message))
		})
	}
	assert.NilError(t, hopeless(&extensionsv1beta1.SandboxClaim{}))
	removed := &extensionsv1beta1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	assert.ErrorIs(t, hopeless(removed), errDeleted)
}

func TestAnInstanceIsNotEndedBeforeItsTime(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 1, time.UTC)
	for _, of := range []time.Time{at, at.Add(time.Second - 2), at.Truncate(time.Second)} {
		got := shutdownTime(of).Time
		assert.Check(t, !got.Before(of) && got.Before(of.Add(time.Second)), "%v of %v", got, of)
		assert.Check(t, got.Equal(got.Truncate(time.Second)), "claims have whole seconds")
	}
}
