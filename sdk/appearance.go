package sdk

import (
	"fmt"
	"regexp"
	"slices"
)

// Bounds of what a Description says for lists of providers.
const (
	// MaxIcon is the longest Icon, in bytes.
	MaxIcon = 16 << 10
	// MaxTags is how many Tags there may be.
	MaxTags = 16
)

var (
	iconName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	// iconImage has nothing in it that could end the attribute or the style in
	// which a page puts it.
	iconImage = regexp.MustCompile(`^data:image/(svg\+xml|png|webp);base64,[A-Za-z0-9+/]+={0,2}$`)
	tagForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,39}$`)
)

// CheckAppearance checks what a Description says for lists of providers: Icon and
// Tags. The broker refuses a plugin whose are not of their form.
func CheckAppearance(icon string, tags []string) error {
	switch {
	case len(icon) > MaxIcon:
		return fmt.Errorf("the icon is larger than %d KiB", MaxIcon>>10)
	case icon != "" && !iconName.MatchString(icon) && !iconImage.MatchString(icon):
		return fmt.Errorf("the icon %.70q is neither a name of the form %s nor a data URI of an image (svg+xml, png or webp) in base64", icon, iconName)
	case len(tags) > MaxTags:
		return fmt.Errorf("%d tags, more than %d", len(tags), MaxTags)
	}
	for i, tag := range tags {
		switch {
		case !tagForm.MatchString(tag):
			return fmt.Errorf("the tag %.70q is not of the form %s", tag, tagForm)
		case slices.Contains(tags[:i], tag):
			return fmt.Errorf("the tag %q stands there twice", tag)
		}
	}
	return nil
}
