package My::Suite::Evenkeel;
@ISA = qw(My::Suite);
return "no plugin" unless $ENV{HA_EVENKEEL_SO};
bless { };
