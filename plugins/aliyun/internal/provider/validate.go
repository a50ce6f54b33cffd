package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/control"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	looksLikeKeyID = regexp.MustCompile(`^(LTAI|STS\.)[A-Za-z0-9.]{8,}$`)
	accountNumber  = regexp.MustCompile(`^[0-9]{8,20}$`)
	// roleName is a part of the address that the machine's metadata are asked at.
	roleName = regexp.MustCompile(`^([A-Za-z0-9_-][A-Za-z0-9._-]{0,63})?$`)
)

// problems of settings that the schema cannot see.
type problems []sdk.FieldError

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// Validate implements sdk.SettingsValidator.
func (p *Provider) Validate(_ context.Context, given sdk.Settings) []sdk.FieldError {
	var s settings
	if err := given.Decode(&s); err != nil {
		return []sdk.FieldError{{Message: err.Error()}}
	}
	var found problems
	found.ofIdentity(s)
	switch {
	case looksLikeKeyID.MatchString(s.AccountID):
		found.add("account_id", "seems to have changed places with access_key_id: it is the number of the primary account")
	case !accountNumber.MatchString(s.AccountID):
		found.add("account_id", "must be the number of the primary account, of digits alone; the console shows it below the picture of the user")
	}
	if s.Network != "PUBLIC" && s.VPCID == "" {
		found.add("vpc_id", "is required where the network is %s", s.Network)
	}
	if s.Network != "PUBLIC" && len(s.VSwitchIDs) == 0 {
		found.add("vswitch_ids", "is required where the network is %s", s.Network)
	}
	if _, _, err := s.endpoints(); len(found) == 0 && err != nil {
		if e, ok := errors.AsType[*sdk.Error](err); ok {
			found.add(e.Field, "%s", e.Message)
		}
	}
	if strings.Contains(os.Getenv("DEBUG"), "sdk") {
		found.add("", "the environment variable DEBUG makes the SDK of Aliyun print signatures: remove it from the provider's env")
	}
	return found
}

func (p *problems) ofIdentity(s settings) {
	for _, f := range []struct{ field, value string }{{"access_key_id", s.AccessKeyID}, {"access_key_secret", s.AccessKeySecret}, {"security_token", s.SecurityToken}} {
		if strings.ContainsFunc(f.value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			p.add(f.field, "has a space or another character in it that keys have not")
			return
		}
		if s.Identity != control.FromKey && f.value != "" {
			p.add("identity", "is %q, which does not use %s: remove one of the two", s.Identity, f.field)
			return
		}
	}
	switch s.Identity {
	case control.FromKey:
		p.ofKey(s)
	case control.FromECSRole:
		if strings.HasPrefix(s.RoleName, "acs:ram:") {
			p.add("role_name", "is the name alone; role_arn is for a role by its ARN")
		} else if !roleName.MatchString(s.RoleName) {
			p.add("role_name", "must be the name of a role: letters, digits, '.', '_' and '-'")
		}
	}
	if len(*p) > 0 {
		return
	}
	// Made, and not used: nothing is fetched.
	if _, err := control.NewCredentials(s.source()); err != nil {
		p.add("identity", "cannot be %s: %v", s.Identity, err)
	}
}

func (p *problems) ofKey(s settings) {
	switch {
	case s.AccessKeyID == "":
		p.add("access_key_id", "is required, unless identity says where else to find a key")
	case s.AccessKeySecret == "":
		p.add("access_key_secret", "is required with access_key_id")
	case looksLikeKeyID.MatchString(s.AccessKeySecret) && !looksLikeKeyID.MatchString(s.AccessKeyID):
		p.add("access_key_id", "seems to have changed places with access_key_secret")
	case accountNumber.MatchString(s.AccessKeyID):
		p.add("access_key_id", "is the number of an account; a key is made in the RAM console, for a RAM user")
	case strings.Contains(s.AccessKeyID, "@"):
		p.add("access_key_id", "is the name of a user; a key is made in the RAM console, for a RAM user")
	case s.AccessKeyID == s.AccessKeySecret:
		p.add("access_key_secret", "is the same as access_key_id")
	case strings.HasPrefix(s.AccessKeyID, "STS.") && s.SecurityToken == "":
		p.add("security_token", "is required with a temporary key, whose ID begins with STS.")
	case strings.HasPrefix(s.AccessKeyID, "LTAI") && s.SecurityToken != "":
		p.add("security_token", "belongs to a temporary key, whose ID begins with STS.; this one begins with LTAI")
	}
}
