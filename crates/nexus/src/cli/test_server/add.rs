//! `add`: the sum of two numbers.

use nexus_core::prelude::*;
use serde_json::Number;

/// Adds two numbers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// The first number.
    #[schemars(with = "f64")]
    a: Number,
    /// The second number.
    #[schemars(with = "f64")]
    b: Number,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Sum {
    #[schemars(with = "f64")]
    sum: Number,
}

#[derive(Debug, Error)]
#[error("the sum is too large for a number")]
struct TooLarge;

impl Tool<()> for Add {
    const NAME: &'static str = "add";
    const ACCESS: Access = Access::Read;
    type Reply = Sum;

    fn summary(&self) -> String {
        format!("add {} and {}", self.a, self.b)
    }

    /// The bare number: 2 and 3 give `5`.
    fn text(reply: &Sum) -> Option<String> {
        Some(reply.sum.to_string())
    }

    async fn run(self, (): &(), _: &CallCx) -> ToolResult<Sum> {
        let sum = sum(&self.a, &self.b).ok_or_else(|| ToolError::refused(TooLarge))?;
        Ok(Sum { sum })
    }
}

/// Whole numbers give a whole number, as long as it fits.
fn sum(a: &Number, b: &Number) -> Option<Number> {
    let whole = a.as_i64().zip(b.as_i64()).and_then(|(a, b)| a.checked_add(b)).map(Number::from);
    whole.or_else(|| Number::from_f64(a.as_f64()? + b.as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_whole_where_they_can_be() {
        check("2", "3", Some("5"));
        check("0.5", "2", Some("2.5"));
        check("-7", "7", Some("0"));
        check("9007199254740993", "1", Some("9007199254740994"));
        check("9223372036854775807", "1", Some("9.223372036854776e+18"));
        check("1e308", "1e308", None);

        #[track_caller]
        fn check(a: &str, b: &str, expected: Option<&str>) {
            let number = |text: &str| serde_json::from_str::<Number>(text).unwrap();
            assert_eq!(sum(&number(a), &number(b)).map(|sum| sum.to_string()).as_deref(), expected, "{a} + {b}");
        }
    }
}
